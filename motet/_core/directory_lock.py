"""A directory that one process holds at a time, until it lets go or ends in any way."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from motet.errors import StateError

LOCK = ".lock"  # where a directory itself cannot be locked


class DirectoryLock:
    """A directory that is held.

    The lock is on the directory itself, not on a file in it: nothing is written, a directory that
    may only be read can be held, and no rename inside it loses the lock.
    """

    def __init__(self, path: Path, lock: Any, made: list[Path]) -> None:
        self.path = path
        self._lock = lock
        self._made = made

    @classmethod
    def take(cls, path: Path, *, make: bool = False) -> DirectoryLock:
        """Hold a directory, and with `make` one that does not exist yet.

        Raises:
            StateError: Another process holds it.
            OSError: It cannot be opened or made.
        """
        while True:
            made = _make(path) if make else []
            try:
                hold = cls(path, _locked(path), made)
            except FileNotFoundError:
                if not make:
                    raise
                continue  # the process that had made it gave up, and removed it
            except StateError:  # another process holds it, so it is that one's to remove
                raise
            except BaseException:
                _unmake(made)
                raise
            # It may have been removed and made again between the opening and the locking.
            if hold.is_current:
                return hold
            hold.close()

    @property
    def is_current(self) -> bool:
        """Tell whether the path still leads to the directory that is held."""
        if sys.platform == "win32":
            return self._lock is not None  # Windows keeps a directory with an open file in place
        return self._lock is not None and identity(self.path) == _of(os.fstat(self._lock))

    def close(self) -> None:
        """Let others have the directory; remove it if it was made here and is still empty."""
        if self._lock is None:
            return
        current, lock, self._lock = self.is_current, self._lock, None
        if current:
            _unmake(self._made)
        _let_go(lock)


def identity(path: Path) -> tuple[int, int] | None:
    """Return what tells a file from another one at the same path; None if there is no file."""
    try:
        return _of(path.stat())
    except OSError:
        return None


def _of(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _make(path: Path) -> list[Path]:
    """Make a directory, and return those that were not there, the outermost first."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()][::-1]
    path.mkdir(parents=True, exist_ok=True)
    return missing


def _unmake(made: list[Path]) -> None:
    """Remove directories as far as they are empty."""
    for folder in reversed(made):
        try:
            folder.rmdir()
        except OSError:  # it is in use
            break


def _locked(path: Path) -> Any:
    if sys.platform == "win32":
        from filelock import FileLock, Timeout

        lock = FileLock(path / LOCK)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            raise _taken(path) from None
        return lock
    import fcntl

    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException as reason:
        os.close(descriptor)
        if isinstance(reason, BlockingIOError):
            raise _taken(path) from None
        raise
    return descriptor


def _let_go(lock: Any) -> None:
    if sys.platform == "win32":
        lock.release()
    else:
        os.close(lock)


def _taken(path: Path) -> StateError:
    return StateError(f"another process is at work in {path}; let it finish.")
