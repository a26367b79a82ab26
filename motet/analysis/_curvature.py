"""Curvature of a loss: spectral norms of Hessian blocks, without forming the Hessian."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import grad

from motet._core import tree
from motet._core.keys import Key
from motet._core.tree import State


def block_norm(
    loss: Callable[..., Tensor],
    point: tuple[State, State],
    a: int,
    b: int,
    key: Key,
    iterations: int,
) -> float:
    """Compute the spectral norm of the Hessian block (a, b) by power iteration on its square."""
    direction, norm = _unit(_random_like(point[a], key)), 0.0
    for _ in range(iterations):
        there = _hessian_times(loss, point, a, b, direction)
        back = _hessian_times(loss, point, b, a, there)
        norm = math.sqrt(math.sqrt(float(tree.dot(back, back))))
        direction = _unit(back)
    return norm


def _hessian_times(
    loss: Callable[..., Tensor], point: tuple[State, State], a: int, b: int, direction: State
) -> State:
    """Multiply a direction in part `a` by the Hessian block that maps it to part `b`."""

    def slope_along(*uv: State) -> Tensor:
        return tree.dot(grad(loss, argnums=a)(*uv), direction)

    product: State = grad(slope_along, argnums=b)(*point)
    return product


def _random_like(state: State, key: Key) -> State:
    rng = key.fold("direction").numpy()
    return {
        k: torch.from_numpy(rng.standard_normal(tuple(v.shape))).to(v.dtype)
        for k, v in state.items()
    }


def _unit(state: State) -> State:
    norm = tree.dot(state, state).sqrt().clamp(min=1e-30)
    return tree.tree_map(lambda leaf: leaf / norm, state)
