"""The idx file format of MNIST and related sets: a type, the shape and the numbers, big-endian."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motet.errors import DataError

_TYPES: dict[int, np.dtype[Any]] = {0x08: np.dtype("u1"), 0x0C: np.dtype(">i4")}


def parse_idx(contents: bytes, origin: str) -> NDArray[Any]:
    """Read an idx file.

    Args:
        contents: The whole file, unpacked.
        origin: The name of the file in error messages.
    """
    if len(contents) < 4 or contents[:2] != b"\0\0" or contents[2] not in _TYPES:
        raise DataError(
            f"{origin} should be an idx file and begin with 00 00 08 or 00 00 0c; "
            f"it begins with {contents[:4].hex(' ') or 'nothing'}. Get the file again."
        )
    number_type, axes = _TYPES[contents[2]], contents[3]
    start = 4 + 4 * axes
    header = contents[4:start].ljust(4 * axes, b"\0")  # a file may end inside its header
    shape = tuple(np.frombuffer(header, ">u4").tolist())
    expected = start + math.prod(shape) * number_type.itemsize
    if len(contents) != expected:
        raise DataError(
            f"{origin} should have {expected:,} bytes for the shape {shape} in its header, got "
            f"{len(contents):,}. The download is incomplete or damaged. Get it again."
        )
    return np.frombuffer(contents, number_type, offset=start).reshape(shape)
