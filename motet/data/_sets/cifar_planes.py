"""Compact copies of CIFAR-10 and CIFAR-100: xz files of colour differences.

The stored planes are green, red - green and blue - green, each differenced along height and width,
all modulo 256.
"""

from __future__ import annotations

import io
import lzma
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from motet.data._sets.files import Arrays, Held
from motet.errors import DataError

_BLOCKS = (*(f"train_{number}.npy.xz" for number in range(5)), "test.npy.xz")


def decode_planes(held: Held) -> Arrays:
    """Read the six blocks of images and their labels, the test set last."""
    labels = read_labels(held)
    train, test = labels["train"], labels["test"]
    coarse = [labels[name] for name in ("train_coarse", "test_coarse") if name in labels]
    with ThreadPoolExecutor() as pool:  # xz is slow, and releases Python's lock
        images = list(pool.map(lambda name: read_block(held, name), _BLOCKS))
    return {
        "x": np.concatenate(images),
        "y": np.concatenate([train, test]).astype(np.int64),
        "test_rows": np.arange(len(train), len(train) + len(test)),
        **({"coarse": np.concatenate(coarse).astype(np.int64)} if coarse else {}),
    }


def read_labels(held: Held) -> Arrays:
    """Read the labels of both parts, and their superclasses if they have any."""
    with np.load(io.BytesIO(held.read("labels.npz"))) as saved:
        return {name: saved[name] for name in saved.files if name != "names"}


def read_block(held: Held, name: str) -> NDArray[np.uint8]:
    """Unpack one file to images, uint8 [rows, 3, 32, 32]."""
    try:
        packed = lzma.decompress(held.read(name))
    except lzma.LZMAError as exc:
        raise DataError(
            f"{held.paths[name]} should be a complete xz file, but cannot be unpacked ({exc}). "
            "Copy it again."
        ) from exc
    return undo_differences(np.load(io.BytesIO(packed)))


def undo_differences(planes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Turn differenced planes [3, rows, height, width] into images [rows, 3, height, width]."""
    # uint8 sums wrap around at 256, which is what undoes differences modulo 256.
    summed = planes.cumsum(axis=2, dtype=np.uint8).cumsum(axis=3, dtype=np.uint8)
    green, red_excess, blue_excess = summed
    return np.stack([green + red_excess, green, green + blue_excess], axis=1)
