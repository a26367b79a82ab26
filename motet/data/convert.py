"""From stored rows to the tensors a model reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from motet.data.raw import Normalize


def is_tokens(dtype: np.dtype[Any]) -> bool:
    """Whether inputs of this type are token numbers: any integers but uint8, which are images."""
    return dtype.kind in "iu" and dtype != np.uint8


def to_inputs(x: NDArray[Any], normalize: Normalize | None) -> Tensor:
    """Make inputs: int64 for tokens, else float32, images in [0, 1], normalized if so asked.

    Where rows have the right type, they are neither copied nor changed.
    """
    if is_tokens(x.dtype):
        return torch.from_numpy(x.astype(np.int64, copy=False))
    inputs = torch.from_numpy(x.astype(np.float32, copy=False))
    if x.dtype == np.uint8:
        inputs /= 255
    return inputs if normalize is None else _normalized(inputs, normalize)


def _normalized(x: Tensor, normalize: Normalize) -> Tensor:
    along_channels = (-1, *[1] * (x.ndim - 2))
    mean, std = (torch.tensor(v).reshape(along_channels) for v in (normalize.mean, normalize.std))
    return (x - mean) / std


def to_targets(y: NDArray[Any], *, classes: int | None) -> Tensor:
    """Make targets: int64 for classes, float32 for regression; not copied if they are so."""
    return torch.from_numpy(y.astype(np.float32 if classes is None else np.int64, copy=False))
