"""Output directories of runs and comparisons: locked by one process, created and emptied.

Every kind has `config.toml`, complete and ready to be run again, and `data.json`, the
manifest of the split with the id of the run. Only files that Motet writes are ever removed.
"""

from __future__ import annotations

import errno
import itertools
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, Self

from motet._core.atomic import write_atomically
from motet._core.corrupt_files import reading
from motet._core.directory_lock import DirectoryLock
from motet._core.real_paths import did_you_mean
from motet._core.version import __version__
from motet._engine.records import json_text
from motet._runs import leftovers
from motet._runs.leftovers import CONFIG, DATA, MARK, REPLACED
from motet.config import read_tables, write_tables
from motet.data import Federation
from motet.errors import StateError

END = "# End of the config."  # how it ends: half a config would be another experiment
HISTORY = "run"  # in data.json: the id that the checkpoint of the run has, too
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class OutputDir:
    """An open directory. One process at a time may hold it."""

    command = "run"  # how to make one like it

    def __init__(self, path: Path) -> None:
        self.path = path
        self._hold: DirectoryLock | None = None
        self._is_ours = False  # what it holds was begun here
        self._description: dict[str, bytes] = {}

    @classmethod
    def claim(cls, path: Path, *, overwrite: bool = False) -> Self:
        """Hold a directory for a new run, before any work is done; nothing in it changes yet."""
        folder = cls(path)
        with folder.writing():
            _refuse_file(path)
            folder._hold = DirectoryLock.take(path, make=True)
        try:
            check_free(path, overwrite=overwrite)
        except BaseException:
            folder.close()
            raise
        return folder

    @classmethod
    def claim_next(cls, parent: Path, stem: str) -> Self:
        """Hold a directory that did not exist yet: stem-1, stem-2, ..."""
        for number in itertools.count(1):
            path = parent / f"{stem}-{number}"
            if path.exists():
                continue
            try:
                return cls.claim(path)
            except StateError:
                if not path.exists():  # else another process was faster
                    raise
        raise AssertionError("numbers do not end")

    def start(self, tables: Mapping[str, Any], data: Federation) -> None:
        """Remove what the directory holds of earlier runs, and write down what this one is."""
        text = write_tables(tables)
        with self.writing():
            self._is_ours = True
            leftovers.remove(self.path)
        self.history = _history(text, data.hash)
        self.write_manifest(data)
        with self.writing():
            (self.path / REPLACED).unlink(missing_ok=True)
        # The config last: where it is, the rest is, too.
        self.replace(CONFIG, f"{self._header()}{text}\n{END}\n".encode())
        self._remember()

    @classmethod
    def create(
        cls, path: Path, tables: Mapping[str, Any], data: Federation, *, overwrite: bool = False
    ) -> Self:
        """Make a directory; one that holds a run is refused, or emptied of it."""
        folder = cls.claim(path, overwrite=overwrite)
        with folder.giving_up():
            folder.start(tables, data)
        return folder

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a directory that was made before."""
        folder = cls(path)
        _check_there(path)
        with folder.writing():
            folder._hold = DirectoryLock.take(path)
        try:
            _check_there(path)
            folder._remember()
        except BaseException:
            folder.close()
            raise
        return folder

    @classmethod
    def taking_over(cls, folder: OutputDir) -> Self:
        """Go on with an open directory whose kind is known by now, without letting go of it."""
        taken = cls(folder.path)
        taken._hold, folder._hold = folder._hold, None
        taken._description = folder._description
        return taken

    @contextmanager
    def giving_up(self) -> Iterator[None]:
        """If what follows fails, close the directory; a run that was begun in it is removed."""
        try:
            yield
        except BaseException:
            if self._is_ours and self._hold is not None and self._hold.is_current:
                with suppress(OSError):
                    leftovers.remove(self.path)
                    (self.path / REPLACED).unlink(missing_ok=True)
            self.close()
            raise

    @cached_property
    def history(self) -> str:
        """The id of the run; "" where none was written down, as version 0.1 did."""
        with reading(self.path / DATA, "manifest"):
            return str(json.loads((self.path / DATA).read_bytes()).get(HISTORY, ""))

    def write_manifest(self, data: Federation) -> None:
        """Write down which data the run is of, and its id."""
        manifest = {**data.manifest(), HISTORY: self.history}
        self.replace(DATA, json_text(manifest, indent=2).encode())

    def keep_description(self) -> None:
        """Write the config and the manifest again if they were removed since they were read."""
        for name, contents in self._description.items():
            if not (self.path / name).exists():
                self.replace(name, contents)

    def tables(self) -> dict[str, Any]:
        """Read the config back."""
        path = self.path / CONFIG
        if not path.read_bytes().rstrip().endswith(END.encode()):
            raise StateError(
                f'{path} is cut short: its last line should be "{END}". If all settings are there, '
                "add the line; else begin the run again."
            )
        return read_tables(path)

    def verify(self, federation: Federation) -> None:
        """Refuse data that are not the ones this directory was made with."""
        path = self.path / DATA
        with reading(path, "manifest"):
            federation.verify(json.loads(path.read_text(encoding="utf-8")))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let others open the directory; calling it again does nothing."""
        if self._hold is not None:
            self._hold.close()
            self._hold = None

    def append(self, name: str, line: Mapping[str, Any]) -> None:
        """Add a line to a file of JSON lines."""
        with self.writing(), (self.path / name).open("a", encoding="utf-8") as file:
            file.write(json_text(line) + "\n")

    def lines(self, name: str) -> list[dict[str, Any]]:
        """Read a file of JSON lines; a line that a crash cut short is left out."""
        path, found = self.path / name, []
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        # Not splitlines: names of clients may hold other characters that end a line.
        for line in filter(None, text.split("\n")):
            try:
                found.append(json.loads(line))
            except (ValueError, RecursionError):
                break
        return found

    def keep_lines(self, name: str, kept: list[dict[str, Any]]) -> None:
        """Write a file of JSON lines anew."""
        self.replace(name, "".join(f"{json_text(line)}\n" for line in kept).encode())

    def replace(self, name: str, contents: bytes) -> None:
        """Write a file anew, whole or not at all."""
        with self.writing():
            write_atomically(self.path / name, contents)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Say in a sentence that the disk is full, or that the directory is not ours (any more)."""
        self._check_current()
        try:
            yield
        except OSError as reason:
            self._check_current()
            why = (reason.strerror or str(reason)).lower()
            advice = "Make room there" if reason.errno in FULL else "Check that you may write there"
            raise StateError(
                f"{self.path} cannot be written: {why}. {advice}, or choose another directory "
                "with --out."
            ) from reason

    def _remember(self) -> None:
        self._description = {name: (self.path / name).read_bytes() for name in (DATA, CONFIG)}

    @classmethod
    def _header(cls) -> str:
        return (
            f"{MARK} {__version__}. Complete: every default is written out.\n"
            f"# Again: motet {cls.command} {CONFIG} --out DIR\n\n"
        )

    def _check_current(self) -> None:
        if self._hold is not None and not self._hold.is_current:
            raise StateError(
                f"{self.path} was removed, moved or replaced while the run was working; put it "
                "back, or begin the run again."
            )


def check_free(path: Path, *, overwrite: bool) -> None:
    """Refuse a directory whose run, or whose other files, would be lost."""
    leftovers.check_removable(path)
    if leftovers.holds_run(path) and not overwrite:
        raise StateError(
            f"{path} already holds a run. Continue it with `motet resume {path}`, replace it with "
            "--overwrite, or choose another directory with --out."
        )


def _refuse_file(path: Path) -> None:
    """Refuse a path that is a file, or lies below one."""
    file = next((part for part in (path, *path.parents) if part.is_file()), None)
    if file is not None:
        raise StateError(
            f"--out expects a directory; {file} is a file. Choose another name, such as "
            f"{file.with_name(f'{file.stem}-run')}."
        )


def _check_there(path: Path) -> None:
    if not (path / CONFIG).is_file() or not (path / DATA).is_file():
        raise StateError(
            f"{path} holds no run: {CONFIG} or {DATA} is missing. Start one with `motet run`."
            f"{did_you_mean(path)}"
        )


def _history(config: str, data: str) -> str:
    """Name a run by what it is, so that equal runs have equal files."""
    return blake2b(f"{data}\n{config}".encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
