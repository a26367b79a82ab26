"""Gradients under any transform: `torch.func.grad`, without the compiler that it imports.

torch's own asks its compiler not to interfere, and so imports it: 70 MB and more than a second, in
every process that trains. What it does besides is a handful of torch's own steps, taken here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from motet._core import tree
from motet._core.transforms import load_grad_parts

T = TypeVar("T")
_PARTS = load_grad_parts()


def grad(function: Callable[..., Tensor]) -> Callable[..., Any]:
    """Differentiate a function by its first argument, a tree of tensors.

    >>> grad(lambda p: p["w"].square().sum())({"w": torch.ones(2)})
    {'w': tensor([2., 2.])}
    """

    def slope(params: T, *rest: Any) -> T:
        return grad_with_aux(lambda leaves: (function(leaves, *rest), ()), params)[0]

    return slope


def grad_with_aux(function: Callable[[T], tuple[Tensor, Any]], params: T) -> tuple[T, Any]:
    """Differentiate the first result of a function, and return the second as it is."""
    if _PARTS is None:  # torch has moved them: its own transform gives the same numbers
        whole: tuple[T, Any] = torch.func.grad(function, has_aux=True)(params)
        return whole
    open_level, wrap, unwrap = _PARTS
    with open_level() as level, torch.enable_grad():
        leaves = tree.tree_map(lambda leaf: wrap(leaf, level), params)
        value, aux = function(leaves)
        flat = tree.leaves(leaves)
        slopes = iter(_slopes(value, flat))
        found = tree.tree_map(lambda _: next(slopes), params)
        undone: tuple[T, Any] = unwrap((found, aux), level)
        return undone


def _slopes(value: Tensor, leaves: list[Tensor]) -> Sequence[Tensor]:
    if not value.requires_grad:  # it depends on none of them
        return [torch.zeros_like(leaf) for leaf in leaves]
    # With a graph, or else a transform around this one would not see what happens here.
    return torch.autograd.grad(value, leaves, create_graph=True, materialize_grads=True)
