"""Directories that hold a run or a comparison: made, locked, and emptied with care.

What every kind has: `config.toml`, complete and ready to be run again, and `data.json`, the
manifest of the split. Only files that Motet writes are ever removed, and only when asked to.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Self

from motet import __version__, checkpoint
from motet.atomic import write_atomically
from motet.closing import Closing
from motet.config import read_tables, write_tables
from motet.data import Federation
from motet.errors import StateError
from motet.malformed import reading
from motet.records import json_text

CONFIG, DATA = "config.toml", "data.json"
ROUNDS, TIMINGS, CLIENTS = "rounds.jsonl", "timings.jsonl", "clients.parquet"  # of a run
CHECKPOINT, PRIVACY = "checkpoint", "privacy.json"
RESULTS, COMPARISON = "results.jsonl", "comparison.json"  # of a comparison
TRIALS, TUNED, REPORT = "trials.jsonl", "tuned.toml", "report.html"
MARK = "# Written by Motet"  # how a file of ours begins, so that nobody else's is replaced
END = "# End of the config."  # how it ends: half a config would be another experiment


class Folder(Closing):
    """An open directory. One process at a time may hold it."""

    command = "run"  # how to make one like it

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[bytes] | None = None

    @classmethod
    def create(
        cls, path: Path, tables: Mapping[str, Any], data: Federation, *, overwrite: bool = False
    ) -> Self:
        """Make a directory; one that holds a run is refused, or emptied of it."""
        check_free(path, overwrite=overwrite)
        folder = cls(path)
        try:
            with folder.writing():
                path.mkdir(parents=True, exist_ok=True)
            if (path / CONFIG).exists():
                folder._acquire()
                folder._clear()
            # The config last: where it is, the rest is, too.
            folder.replace(DATA, json_text(data.manifest(), indent=2).encode())
            folder.replace(CONFIG, f"{cls._header()}{write_tables(tables)}\n{END}\n".encode())
        except BaseException:
            folder.close()
            raise
        return folder._acquire()

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a directory that was made before."""
        if not (path / CONFIG).is_file() or not (path / DATA).is_file():
            raise StateError(
                f"{path} holds no run: {CONFIG} or {DATA} is missing. Start one with `motet run`."
            )
        return cls(path)._acquire()

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

    def close(self) -> None:
        """Let others open the directory."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def append(self, name: str, line: Mapping[str, Any]) -> None:
        """Add a line to a file of JSON lines."""
        with self.writing(), (self.path / name).open("a", encoding="utf-8") as file:
            file.write(json_text(line) + "\n")

    def lines(self, name: str) -> list[dict[str, Any]]:
        """Read a file of JSON lines; a line that a crash cut short is left out."""
        path, found = self.path / name, []
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
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
        """Say in a sentence that the disk is full, or that the place is not ours."""
        try:
            yield
        except OSError as reason:
            why = (reason.strerror or str(reason)).lower()
            raise StateError(
                f"{self.path} cannot be written: {why}. Make room there, or choose another "
                "directory with --out."
            ) from reason

    @classmethod
    def _header(cls) -> str:
        return (
            f"{MARK} {__version__}. Complete: every default is written out.\n"
            f"# Again: motet {cls.command} {CONFIG} --out DIR\n\n"
        )

    def _clear(self) -> None:
        results = (ROUNDS, CLIENTS, PRIVACY, RESULTS, COMPARISON, TRIALS, TUNED, REPORT)
        for name in (*results, DATA, CONFIG):
            (self.path / name).unlink(missing_ok=True)
        checkpoint.remove(self.path / CHECKPOINT)

    def _acquire(self) -> Self:
        """Hold the directory until it is closed, or until the process ends in any way."""
        self.close()
        if os.name != "posix":
            return self
        import fcntl

        self._lock = (self.path / CONFIG).open("rb")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise StateError(f"another process is at work in {self.path}; let it finish.") from None
        return self


def check_free(path: Path, *, overwrite: bool) -> None:
    """Refuse a directory whose run would be lost, before any work is done."""
    written = path / CONFIG
    if not written.exists():
        return
    if not written.read_text(encoding="utf-8", errors="replace").startswith(MARK):
        raise StateError(
            f"{written} was not written by Motet, and a run would replace it. Choose another "
            "directory with --out."
        )
    if not overwrite:
        raise StateError(
            f"{path} already holds a run. Go on with it by `motet resume {path}`, replace it with "
            "--overwrite, or choose another directory with --out."
        )


def next_free(parent: Path, stem: str) -> Path:
    """Name a directory that does not exist yet: stem-1, stem-2, ..."""
    numbers = (number for number in range(1, 10**9) if not (parent / f"{stem}-{number}").exists())
    return parent / f"{stem}-{next(numbers)}"
