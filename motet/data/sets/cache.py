"""Decoded arrays, kept as plain .npy files and opened as memory maps.

Decoding happens once: an entry is written under a temporary name and then renamed, so that it is
either complete or absent, whoever else is writing it. Without a writable cache the arrays stay in
memory.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Part of every entry's name: raise it when a decoder's output changes.
_FORMAT = "v1"


def cache_folder() -> Path:
    """Return `$MOTET_CACHE`, or the place below the user's home that is used without it."""
    named = os.environ.get("MOTET_CACHE")
    return Path(named).expanduser() if named else Path.home() / ".cache" / "motet" / "decoded"


def cached(entry: str, build: Callable[[], Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """Open the arrays of `entry`, building and keeping them the first time.

    Args:
        entry: A name that changes whenever the source files or the way of reading them do.
        build: Makes the arrays.
    """
    folder = cache_folder() / f"{entry}-{_FORMAT}"
    kept = _open(folder)
    if kept is not None:
        return kept
    arrays = dict(build())
    try:
        _publish(folder, arrays)
    except OSError:
        # Read-only home, full disk: slower next time, and no reason to fail now.
        return arrays
    return _open(folder) or arrays


def _open(folder: Path) -> dict[str, NDArray[Any]] | None:
    """Map what is in `folder`; None if it is absent, out of reach, or damaged and now gone."""
    try:
        arrays = {path.stem: np.load(path, mmap_mode="r") for path in folder.glob("*.npy")}
    except (ValueError, EOFError):
        shutil.rmtree(folder, ignore_errors=True)
        return None
    except OSError:
        return None
    return arrays or None


def _publish(folder: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        for name, array in arrays.items():
            np.save(draft / f"{name}.npy", array, allow_pickle=False)
        draft.rename(folder)
    except OSError:
        # Another process may have been faster: its entry has the same contents.
        if not folder.is_dir():
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
