"""How tensors lie in memory: what a program is made for, and what the passes reason about."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Layout(NamedTuple):
    """Shape, strides and type of a tensor."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype


def layout(tensor: Tensor) -> Layout:
    """Return the layout of a tensor."""
    return Layout(tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype)
