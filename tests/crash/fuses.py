"""A process that kills itself right before a change on disk, of which it counts every one."""

import mmap
import os
import signal
import sqlite3
import sys
from pathlib import Path
from typing import Any

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Fuse:
    """Counts changes in a directory, and kills the process before one of them.

    A change is a statement of SQLite that does more than read, a file that is opened to be written,
    renamed or removed, or a directory that is made or removed. SQLite's trace and Python's audit
    events tell of them, so what is tested is as it always is.

    Attributes:
        length: How many changes may happen; None: all of them.
    """

    def __init__(self, length: int | None = None) -> None:
        self.length = length
        self._count = mmap.mmap(-1, 8)  # shared with the child that burns it

    @property
    def burnt(self) -> int:
        """How many changes have happened."""
        return int.from_bytes(self._count[:8], "little")

    def light(self, path: Path) -> None:
        """Begin to count, until this process ends: nobody can take an audit hook back."""
        connect = sqlite3.connect

        def traced(*where: Any, **options: Any) -> sqlite3.Connection:
            connection = connect(*where, **options)
            connection.set_trace_callback(read_or_burn)
            return connection

        def read_or_burn(statement: str) -> None:
            if not statement.startswith("SELECT"):
                self._burn()

        def watch(event: str, details: tuple[Any, ...]) -> None:
            if _is_change(event, details, str(path)):
                self._burn()

        sqlite3.connect = traced
        sys.addaudithook(watch)

    def _burn(self) -> None:
        if self.burnt == self.length:
            os.kill(os.getpid(), signal.SIGKILL)
        self._count[:8] = (self.burnt + 1).to_bytes(8, "little")


def _is_change(event: str, details: tuple[Any, ...], folder: str) -> bool:
    if event in ("os.rename", "os.remove", "os.mkdir", "os.rmdir"):
        return str(details[event == "os.rename"]).startswith(folder)
    return event == "open" and str(details[0]).startswith(folder) and bool(details[2] & WRITING)
