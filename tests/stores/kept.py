"""A state with everything a tree may hold."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Kept(NamedTuple):
    model: dict[str, Tensor]
    steps: Tensor
    flags: tuple[Tensor, Tensor]


def state(value: int) -> Kept:
    return Kept(
        model={
            "head/weight": torch.full((2, 3), float(value)),
            "head.bias": torch.arange(3, dtype=torch.bfloat16) + value,
            "nothing": torch.empty(0, 4),
        },
        steps=torch.tensor(2**40 + value),
        flags=(torch.tensor([True, value % 2 == 0]), torch.tensor(value % 100, dtype=torch.uint8)),
    )
