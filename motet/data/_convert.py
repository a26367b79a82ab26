"""Conversion of stored rows to the tensors that a model reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from motet.data._raw import Normalize, Precision


def is_tokens(dtype: np.dtype[Any]) -> bool:
    """Whether inputs of this type are tokens: any integers except uint8, which are images."""
    return dtype.kind in "iu" and dtype != np.uint8


def to_inputs(
    x: NDArray[Any], normalize: Normalize | None, precision: Precision = "float32"
) -> Tensor:
    """Make inputs: int64 for tokens, else real numbers, images scaled to [0, 1], then normalized.

    Rows that already have the right type are neither copied nor changed.
    """
    if is_tokens(x.dtype):
        return torch.from_numpy(x.astype(np.int64, copy=False))
    inputs = torch.from_numpy(x.astype(precision, copy=False))
    if x.dtype == np.uint8:
        inputs /= 255
    return inputs if normalize is None else _normalized(inputs, normalize)


def _normalized(x: Tensor, normalize: Normalize) -> Tensor:
    along_channels = (-1, *[1] * (x.ndim - 2))
    mean, std = (
        torch.tensor(v, dtype=x.dtype).reshape(along_channels)
        for v in (normalize.mean, normalize.std)
    )
    return (x - mean) / std


def to_targets(y: NDArray[Any], *, classes: int | None, precision: Precision = "float32") -> Tensor:
    """Make targets: int64 for classes, real for regression; copied only to change the type."""
    return torch.from_numpy(y.astype(precision if classes is None else np.int64, copy=False))
