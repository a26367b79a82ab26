"""Files in a folder or in a published .tar.gz archive, which is read without unpacking to disk."""

from __future__ import annotations

import io
import tarfile
import zlib
from collections.abc import Callable, Collection, Sequence
from pathlib import PurePosixPath

from motet.data._sets.files import Held
from motet.errors import DataError


def member_reader(held: Held, wanted: Sequence[str]) -> tuple[Callable[[str], bytes], str]:
    """Return a function that reads the wanted files, from a folder or an archive, and its path."""
    if wanted[0] in held.paths:
        return held.read, str(held.paths[wanted[0]].parent)
    return read_members(held, wanted).__getitem__, str(*held.paths.values())


def read_members(held: Held, wanted: Collection[str]) -> dict[str, bytes]:
    """Return the contents of the wanted files, by their names without folders."""
    [(name, path)] = held.paths.items()
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(held.read(name)), mode="r:gz") as archive:
            for member in archive:
                file = archive.extractfile(member)
                base = PurePosixPath(member.name).name
                if file is not None and base in wanted:
                    found[base] = file.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as exc:
        raise DataError(
            f"{path} should be a complete .tar.gz archive, but cannot be unpacked ({exc}). "
            f"Get it again: {held.where}"
        ) from exc
    absent = sorted(set(wanted) - set(found))
    if absent:
        raise DataError(
            f"{path} should contain {', '.join(absent)}, but does not. "
            f"Get the right archive: {held.where}"
        )
    return found
