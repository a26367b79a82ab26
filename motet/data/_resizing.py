"""Images of another size."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from motet.data._raw import Raw
from motet.errors import CapabilityError

AT_ONCE = 4096  # images that are resized together


def resized(raw: Raw, size: int) -> Raw:
    """Resize images to `size` x `size` pixels; uint8 stays uint8."""
    require_images(raw, "data.size")
    if raw.x.shape[2:] == (size, size):
        return raw
    made = np.empty((*raw.x.shape[:2], size, size), raw.x.dtype)
    for start in range(0, len(made), AT_ONCE):
        made[start : start + AT_ONCE] = resized_images(raw.x[start : start + AT_ONCE], size)
    return replace(raw, x=made)


def require_images(raw: Raw, key: str) -> None:
    """Refuse data that are not images."""
    if raw.x.ndim != 4 or raw.x.dtype.kind not in "uf" or raw.x.shape[1] > 4:
        raise CapabilityError(
            f"{key} is for images [channels, height, width]; inputs of these data have shape "
            f"{list(raw.x.shape[1:])} and type {raw.x.dtype}."
        )


def resized_images(images: NDArray[Any], size: int) -> NDArray[Any]:
    """Resize a few images [rows, channels, height, width]."""
    pixels = torch.from_numpy(np.array(images, np.float32))
    made = functional.interpolate(
        pixels, (size, size), mode="bilinear", align_corners=False, antialias=True
    ).numpy()
    rounded = np.clip(np.rint(made), 0, 255) if images.dtype == np.uint8 else made
    return np.asarray(rounded, images.dtype)
