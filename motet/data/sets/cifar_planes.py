"""A compact copy of CIFAR-10: xz files of colour differences, smaller than the published archive.

Stored are the planes green, red - green and blue - green, each differenced along height and width,
all modulo 256.
"""

from __future__ import annotations

import io
import lzma
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from motet.data.sets.files import Arrays, Held
from motet.errors import DataError

_BLOCKS = (*(f"train_{number}.npy.xz" for number in range(5)), "test.npy.xz")


def decode_planes(held: Held) -> Arrays:
    """Read the six blocks of images and their labels, the test set last."""
    with np.load(io.BytesIO(held.read("labels.npz"))) as saved:
        train, test = saved["train"], saved["test"]
    with ThreadPoolExecutor() as pool:  # xz unpacks slowly, and outside Python's lock
        images = list(pool.map(lambda name: read_block(held, name), _BLOCKS))
    return {
        "x": np.concatenate(images),
        "y": np.concatenate([train, test]).astype(np.int64),
        "test_rows": np.arange(len(train), len(train) + len(test)),
    }


def read_block(held: Held, name: str) -> NDArray[np.uint8]:
    """Unpack one file to images, uint8 [rows, 3, 32, 32]."""
    try:
        packed = lzma.decompress(held.read(name))
    except lzma.LZMAError as exc:
        raise DataError(
            f"{held.paths[name]} should be a complete xz file, but it does not unpack ({exc}). "
            "Copy it again."
        ) from exc
    return undo_differences(np.load(io.BytesIO(packed)))


def undo_differences(planes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Turn differenced planes [3, rows, height, width] into images [rows, 3, height, width]."""
    # uint8 sums wrap around at 256, which is what undoes differences modulo 256.
    summed = planes.cumsum(axis=2, dtype=np.uint8).cumsum(axis=3, dtype=np.uint8)
    green, red_excess, blue_excess = summed
    return np.stack([green + red_excess, green, green + blue_excess], axis=1)
