"""Finding the files of a data set, and verifying that they are the right ones.

The same data exist in different forms: the published archive, its unpacked files, or a converted
copy. Each form is a `Source`; the first one whose files are all present is read. Nothing is ever
downloaded or unpickled.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from motet.data._raw import Normalize, Raw
from motet.data._sets.cache import cached
from motet.errors import DataError

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Source:
    """One form of a data set: files in one folder, and how to decode them.

    Attributes:
        folders: Where the files may be, below `$MOTET_DATA` or `~/.cache/motet`.
        sums: The SHA-256 of each file; None if unknown, in which case `decode` checks the contents.
            A file may also be gzipped, with ".gz" after its name; the sum is of the uncompressed
            contents, because mirrors compress differently.
        decode: Turns the files into arrays.
        patterns: Further files, by glob, gzipped or not; each pattern must match at least one.
    """

    folders: tuple[str, ...]
    sums: Mapping[str, str | None]
    decode: Callable[[Held], Arrays]
    patterns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Held:
    """A source whose files were found, by their paths below its folder."""

    source: Source
    paths: Mapping[str, Path] = field(repr=False)
    where: str

    def fingerprint(self) -> str:
        """Hash the files as they are on disk, compressed or not."""
        digest = hashlib.sha256()
        for name, path in sorted(self.paths.items()):
            with path.open("rb") as file:
                digest.update(name.encode() + hashlib.file_digest(file, "sha256").digest())
        return digest.hexdigest()

    def read(self, name: str) -> bytes:
        """Return the contents of a file, unpacked if it is gzipped, after checking the SHA-256."""
        path = self.paths[name]
        is_packed = path.suffix == ".gz" and not name.endswith(".gz")
        contents = self._unpack(path) if is_packed else path.read_bytes()
        expected = self.source.sums.get(name)
        found = hashlib.sha256(contents).hexdigest()
        if expected is not None and found != expected:
            raise DataError(
                f"the contents of {path} should have SHA-256 {expected[:12]}..., got "
                f"{found[:12]}... The file is damaged or a different one. Get it again: "
                f"{self.where}"
            )
        return contents

    def _unpack(self, path: Path) -> bytes:
        try:
            return gzip.decompress(path.read_bytes())
        except (EOFError, zlib.error, gzip.BadGzipFile) as exc:
            raise DataError(
                f"{path} should be a complete gzip file, but cannot be unpacked ({exc}). "
                f"Get it again: {self.where}"
            ) from exc


def open_arrays(name: str, sources: Sequence[Source], where: str) -> Arrays:
    """Find a data set and return its arrays, memory-mapped from the cache after the first load."""
    held = locate(name, sources, where)
    return cached(f"{name}-{held.fingerprint()[:20]}", lambda: held.source.decode(held))


def open_raw(
    name: str,
    sources: Sequence[Source],
    where: str,
    *,
    labels: tuple[str, ...],
    normalize: Normalize | None = None,
) -> Raw:
    """Open a data set whose decoded arrays are named after the fields of `Raw`."""
    arrays = open_arrays(name, sources, where)
    return Raw(**arrays, labels=labels, normalize=normalize, classes=len(labels), survival=False)


def roots() -> tuple[Path, ...]:
    """List the folders that may contain data sets: `$MOTET_DATA`, if set, then the user's cache."""
    named = os.environ.get("MOTET_DATA")
    home = Path.home() / ".cache" / "motet"
    return (Path(named).expanduser(), home) if named else (home,)


def locate(name: str, sources: Sequence[Source], where: str) -> Held:
    """Find the first source whose files are all present."""
    near_misses = []
    for source in sources:
        for folder in _candidates(source):
            paths, missing = _gather(source, folder)
            if not missing:
                return Held(source=source, paths=paths, where=where)
            if paths:
                near_misses.append(f"{folder} lacks {', '.join(missing)}")
    raise DataError(_missing(name, sources, where, near_misses))


def _candidates(source: Source) -> list[Path]:
    return [root / folder for root in roots() for folder in source.folders]


def _gather(source: Source, folder: Path) -> tuple[dict[str, Path], list[str]]:
    """Return the files of `source` that are in `folder`, and the names of the missing ones."""
    paths: dict[str, Path] = {}
    missing: list[str] = []
    for name in source.sums:
        held = next((p for p in (folder / name, folder / f"{name}.gz") if p.is_file()), None)
        if held is None:
            missing.append(name)
        else:
            paths[name] = held
    for pattern in source.patterns:
        # By path below the folder: train/data.json and test/data.json are two files.
        found = [*folder.glob(f"{pattern}.gz"), *folder.glob(pattern)]
        matches = {
            path.relative_to(folder).as_posix().removesuffix(".gz"): path
            for path in found
            if not path.name.startswith(".")  # notes of macOS in archives
        }
        paths.update(matches)
        missing.extend([] if matches else [pattern])
    return paths, missing


def _missing(name: str, sources: Sequence[Source], where: str, near_misses: list[str]) -> str:
    forms = " or ".join(dict.fromkeys(_listing(source) for source in sources))
    places = dict.fromkeys(str(folder) for source in sources for folder in _candidates(source))
    partly = f" Incomplete: {'; '.join(near_misses)}." if near_misses else ""
    return (
        f'data set "{name}" needs {forms}, but none of these folders has all of them: '
        f"{', '.join(places)}.{partly} Get them: {where} Put them in one of these folders, or set "
        f"the environment variable MOTET_DATA to the parent folder of {sources[0].folders[0]}/."
    )


def _listing(source: Source) -> str:
    names = [*source.sums, *source.patterns]
    return ", ".join(names) if len(names) < 4 else f"{names[0]}, {names[1]}, ... {names[-1]}"
