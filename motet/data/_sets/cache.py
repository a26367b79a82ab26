"""A cache of decoded arrays: plain .npy files, opened as memory maps.

A data set is decoded once. An entry is written under a temporary name and then renamed, so that it
is either complete or absent even if several processes write it. Without a writable cache the arrays
stay in memory.
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
    """Return `$MOTET_CACHE`, by default `~/.cache/motet/decoded`."""
    named = os.environ.get("MOTET_CACHE")
    return Path(named).expanduser() if named else Path.home() / ".cache" / "motet" / "decoded"


def cached(entry: str, build: Callable[[], Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """Open the arrays of `entry`; build and save them the first time.

    Args:
        entry: A name that changes whenever the source files or the decoder change.
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
        # A read-only home or a full disk only makes the next load slower; no reason to fail.
        return arrays
    return _open(folder) or arrays


def _open(folder: Path) -> dict[str, NDArray[Any]] | None:
    """Map the arrays in `folder`; None if it is missing, unreadable, or damaged and now removed."""
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
        # Another process may have been faster; its entry has the same contents.
        if not folder.is_dir():
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
