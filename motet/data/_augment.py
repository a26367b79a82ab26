"""Augmentation of training images: mirrored, or shifted by a few pixels.

Drawn from a key of seed, round and client, so that every backend sees the same images. Validation
and test images are never changed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from motet._core.keys import Key
from motet.data._raw import Normalize
from motet.errors import CapabilityError, RequestError, nearest

AUGMENTATIONS = ("flip", "crop")


def check_augmentations(names: Sequence[str], shape: Sequence[int], data: str) -> tuple[str, ...]:
    """Refuse unknown augmentations, and data that are not images."""
    for name in names:
        if name not in AUGMENTATIONS:
            raise RequestError(
                f'no augmentation is called "{name}"; {nearest(name, AUGMENTATIONS)}.',
                option="augment",
            )
    if names and (len(shape) != 3 or shape[0] > 4):
        raise CapabilityError(
            f'augmentation is for images [channels, height, width]; inputs of "{data}" have shape '
            f"{list(shape)}. Leave data.augment out."
        )
    return tuple(dict.fromkeys(names))


def augmented(x: Tensor, names: Sequence[str], key: Key, normalize: Normalize | None) -> Tensor:
    """Return a changed copy of a client's images [rows, channels, height, width].

    "flip" mirrors each image with probability 1/2; "crop" pads it with black pixels, an eighth of
    its size on every side (4 of 32), and cuts out a window of the original size.
    """
    rows, channels, height, width = x.shape
    random = key.numpy()
    mirrored = random.random(rows) < 0.5 if "flip" in names else np.zeros(rows, bool)
    pads = (max(height // 8, 1), max(width // 8, 1)) if "crop" in names else (0, 0)
    down, right = (random.integers(0, 2 * pad + 1, rows) for pad in pads)
    down_at = down[:, None] + np.arange(height)  # [rows, height]
    along = np.where(mirrored[:, None], np.arange(width)[::-1], np.arange(width))
    right_at = right[:, None] + along  # [rows, width]
    padded = _padded(x, pads, normalize)
    return padded[
        torch.arange(rows)[:, None, None, None],
        torch.arange(channels)[None, :, None, None],
        torch.from_numpy(down_at)[:, None, :, None],
        torch.from_numpy(right_at)[:, None, None, :],
    ]


def _padded(x: Tensor, pads: tuple[int, int], normalize: Normalize | None) -> Tensor:
    """Surround images by black pixels, which are not 0 after normalization."""
    if pads == (0, 0):
        return x
    rows, channels, height, width = x.shape
    black = [0.0] if normalize is None else _black(normalize)
    fill = torch.tensor(black, dtype=x.dtype).reshape(-1, 1, 1)
    shape = (rows, channels, height + 2 * pads[0], width + 2 * pads[1])
    padded = fill.expand(shape[1:]).expand(shape).clone()
    padded[:, :, pads[0] : pads[0] + height, pads[1] : pads[1] + width] = x
    return padded


def _black(normalize: Normalize) -> list[float]:
    return [-mean / std for mean, std in zip(normalize.mean, normalize.std, strict=True)]
