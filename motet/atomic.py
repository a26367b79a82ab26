"""Files that are whole or not there: a crash in the middle leaves the old ones."""

from __future__ import annotations

import os
from pathlib import Path


def write_atomically(path: Path, contents: bytes) -> None:
    """Replace a file in one step, on disk when this returns."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    with unfinished.open("wb") as file:
        file.write(contents)
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
