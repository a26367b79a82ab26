"""Atomic writes: after a crash a file is the old one or the new one, never half of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def write_atomically(
    path: Path, contents: bytes, *, shared: bool = False, private: bool = False
) -> None:
    """Replace a file in one step, on disk when this returns.

    Args:
        path: The file.
        contents: All of it.
        shared: Other processes may write it at the same time; the last one counts.
        private: Other accounts can never read it, not even while it is written.
    """
    with writing_atomically(path, shared=shared, private=private) as file:
        file.write(contents)


@contextmanager
def writing_atomically(
    path: Path, *, shared: bool = False, private: bool = False
) -> Iterator[BinaryIO]:
    """Open a file to be written bit by bit; it takes its place, on disk, when all went well."""
    writer = f".{os.getpid()}" if shared else ""
    unfinished = path.with_name(f".{path.name}{writer}.unfinished")
    if private:
        unfinished.unlink(missing_ok=True)  # what a crash left behind would keep its mode
    with open(unfinished, "wb", opener=_for_owner if private else None) as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    sync_folder(path.parent)


def make_private_folder(folder: Path) -> None:
    """Make a folder, and those above it that are missing, which no other account can enter."""
    for missing in reversed([f for f in (folder, *folder.parents) if not f.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)


def _for_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def sync_folder(folder: Path) -> None:
    """Put the renaming itself on disk, where the system can."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
