"""Files that are whole or not there: a crash in the middle leaves the old ones."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def write_atomically(path: Path, contents: bytes) -> None:
    """Replace a file in one step, on disk when this returns."""
    with writing_atomically(path) as file:
        file.write(contents)


@contextmanager
def writing_atomically(path: Path) -> Iterator[BinaryIO]:
    """Open a file to be written bit by bit; it takes its place, on disk, when all went well."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    with unfinished.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Put the renaming itself on disk, where the system can."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
