"""One SQLite file: opened at the first use, written in transactions, and checked when it is read.

SQLite's own messages become sentences that name the file. After a write has failed the file is
closed for good: earlier changes of the same transaction are lost, so nothing may follow.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from motet._core.directory_lock import identity
from motet.errors import MotetError, StateError, WireError

Row = tuple[Any, ...]
Types = tuple[type, ...]
# A commit is on disk when it returns; others read the last one meanwhile. The log shrinks again
# after a large transaction.
SETTINGS = ("journal_mode = WAL", "synchronous = FULL", "journal_size_limit = 4194304")


class Database:
    """A file of tables. Threads may share it; processes may read it while one writes.

    Attributes:
        lock: Held during each statement; to be held across those that belong together.
        on_begin: Called when a transaction has begun, before anything is changed in it.
    """

    def __init__(self, path: Path, tables: tuple[str, ...], *, read_only: bool = False) -> None:
        self.path = path
        self.read_only = read_only
        self._tables = tables
        self.lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._failure = ""
        self._files: tuple[object, ...] = ()  # that are open
        self.on_begin: Callable[[], None] | None = None

    @property
    def is_new(self) -> bool:
        """Tell whether the file has yet to be made."""
        return self._connection is None and not self.path.exists()

    def rows(self, types: Types, query: str, *values: Any) -> list[Row]:
        """Read; what this process has not committed yet is included."""
        return list(self.each(types, query, *values))

    def each(self, types: Types, query: str, *values: Any) -> Iterator[Row]:
        """Read row by row, where there may be too many to hold."""
        with self._guarded() as connection:
            for row in connection.execute(query, values):
                # SQLite keeps a type with each value, so a flipped bit may turn bytes into text.
                if tuple(map(type, row)) != types:
                    raise WireError(f"{self.path} is damaged: a value has another type.")
                yield row

    def write(self, statement: str, *values: Any) -> int:
        """Change something, visible to others after `commit`; return the number of a new row."""
        with self._guarded(writing=True) as connection:
            if not connection.in_transaction:
                connection.execute("BEGIN IMMEDIATE")
                self._check_files()
                if self.on_begin is not None:
                    self.on_begin()
            return connection.execute(statement, values).lastrowid or 0

    def commit(self) -> None:
        """Put everything since the last commit on disk, in one step."""
        with self._guarded(writing=True) as connection:
            if connection.in_transaction:
                connection.execute("COMMIT")
                # Afterwards: what was removed before now has not been saved.
                self._check_files()

    def close(self) -> None:
        """Close the file, and forget what was not committed."""
        with self.lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    @contextmanager
    def _guarded(self, *, writing: bool = False) -> Iterator[sqlite3.Connection]:
        with self.lock:
            if self._failure:
                raise StateError(f"{self.path} was closed after a failure: {self._failure}.")
            try:
                if self._connection is None:
                    self._connection = self._connect()
                yield self._connection
            except (sqlite3.Error, MotetError) as reason:
                if writing:
                    self._failure = str(reason).rstrip(".")
                    self.close()
                if isinstance(reason, MotetError):
                    raise
                raise self._in_words(reason) from reason

    def _found_files(self) -> tuple[object, ...]:
        """Tell which files are at the paths of the database and of its log."""
        paths = (self.path, self.path.with_name(f"{self.path.name}-wal"))
        return tuple(identity(path) for path in paths)

    def _check_files(self) -> None:
        """Refuse to write into files that were removed or replaced."""
        if self._found_files() != self._files:
            raise StateError(
                f"{self.path} was removed, moved or replaced while it was in use, so nothing more "
                "can be saved there; what it held is lost unless you put it back."
            )

    def _connect(self) -> sqlite3.Connection:
        if not self.read_only:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        mode = "ro" if self.read_only else "rwc"
        where = f"{self.path.absolute().as_uri()}?mode={mode}"
        connection = sqlite3.connect(where, uri=True, isolation_level=None, check_same_thread=False)
        try:
            if not self.read_only:
                for statement in (*(f"PRAGMA {setting}" for setting in SETTINGS), *self._tables):
                    connection.execute(statement)
                self._files = self._found_files()
        except BaseException:
            connection.close()
            raise
        return connection

    def _in_words(self, reason: sqlite3.Error) -> MotetError:
        name = getattr(reason, "sqlite_errorname", "")
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return StateError(f"another process is writing {self.path}; let it finish.")
        if name.startswith(("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_CANTOPEN", "SQLITE_READONLY")):
            is_access = name.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY"))
            advice = "Check that you may write there" if is_access else "Make room there"
            return StateError(
                f"{self.path} cannot be read or written: {reason}. {advice}, then continue."
            )
        return WireError(f"{self.path} is damaged: {reason}.")
