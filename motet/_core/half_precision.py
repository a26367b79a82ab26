"""Uploads in half precision: every float32 number is sent in 16 bits, and combined in float32."""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor

from motet._core import tree
from motet.errors import RequestError, nearest

Precision = Literal["float32", "float16", "bfloat16"]
FULL: Precision = "float32"
HALVES = {"float16": torch.float16, "bfloat16": torch.bfloat16}


def check_precision(precision: str) -> None:
    """Refuse a precision that uploads cannot have."""
    known = get_args(Precision)
    if precision not in known:
        raise RequestError(
            f'no precision of uploads is called "{precision}"; {nearest(precision, known)}.',
            option="uploads",
        )


def packed(value: Any, precision: Precision) -> Any:
    """Turn float32 tensors into 16 bits; numpy has no bfloat16, so these travel as int16.

    >>> packed({"w": torch.tensor([1.0, 0.1])}, "float16")["w"]
    tensor([1.0000, 0.1000], dtype=torch.float16)
    """
    if precision == FULL:
        return value

    def pack(leaf: Tensor) -> Tensor:
        half = leaf.to(HALVES[precision])
        return half.view(torch.int16) if precision == "bfloat16" else half

    return tree.tree_map(lambda leaf: pack(leaf) if leaf.dtype == torch.float32 else leaf, value)


def unpacked(value: Any, template: Any, precision: Precision) -> Any:
    """Undo `packed`; the template says which tensors were float32."""
    if precision == FULL:
        return value
    kinds = {name: leaf.dtype for name, leaf in tree.flatten(template)}

    def unpack(name: str, leaf: Tensor) -> Tensor:
        if kinds[name] != torch.float32:
            return leaf
        return (leaf.view(torch.bfloat16) if precision == "bfloat16" else leaf).float()

    return tree.unflatten(value, {name: unpack(name, leaf) for name, leaf in tree.flatten(value)})


def rounded(value: Any, precision: Precision) -> Any:
    """Round to what arrives.

    >>> rounded({"w": torch.tensor([0.1])}, "bfloat16")["w"].item()
    0.10009765625
    """
    return unpacked(packed(value, precision), value, precision)
