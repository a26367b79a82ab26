"""Photographs: files decoded and cut to squares of one size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motet.errors import CapabilityError, DataError, one_line

SIZE = 96  # pixels of a side; `data.size` makes them smaller


def read_pictures(paths: Sequence[Path], where: str, size: int = SIZE) -> NDArray[np.uint8]:
    """Read pictures as uint8 [rows, 3, size, size]: the middle square, resized."""
    pictures = np.empty((len(paths), 3, size, size), np.uint8)
    for row, path in enumerate(paths):
        pictures[row] = _picture(path, where, size).transpose(2, 0, 1)
    return pictures


def _picture(path: Path, where: str, size: int) -> NDArray[np.uint8]:
    image = picture_library(path)
    if not path.is_file():
        raise DataError(f"the picture {path} is missing. Get it: {where}")
    try:
        with image.open(path) as opened:
            picture = opened.convert("RGB")
    except Exception as reason:  # Pillow raises nearly anything for a damaged file
        raise DataError(
            f"{path} cannot be read as a picture ({one_line(reason)[:120]}). Get it again: {where}"
        ) from None
    side = min(picture.size)
    left, top = (picture.width - side) // 2, (picture.height - side) // 2
    box = (left, top, left + side, top + side)
    return np.asarray(picture.resize((size, size), image.Resampling.BILINEAR, box))


def picture_library(path: Path) -> Any:
    """Import Pillow, or say how to get it."""
    try:
        from PIL import Image
    except ImportError:
        raise CapabilityError(
            f'{path.name} is a picture, which needs Pillow: pip install "motet[readers]".'
        ) from None
    return Image
