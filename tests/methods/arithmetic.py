"""Worlds in which a method's results can be worked out by hand, and how to run in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import motet
from motet._core import tree
from motet._core.tree import State
from motet._engine.federation import Run
from motet.data import Federation, from_arrays
from motet.method import AnyMethod
from motet.task import Task

BACKENDS = ("serial", "vectorized")


class Slope(nn.Module):
    """w x."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.w * x


class Normed(nn.Module):
    """A body with batch normalisation, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 5, bias=False), nn.BatchNorm1d(5), nn.Tanh())
        self.head = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


def half_squared_error(outputs: Tensor, y: Tensor) -> Tensor:
    return (outputs - y).square() / 2


def product(outputs: Tensor, y: Tensor) -> Tensor:
    """A loss whose gradient is the same everywhere."""
    return outputs * y


BOWL = motet.Task(Slope, loss=half_squared_error, kind="values")  # x^2 / 2 (w - y / x)^2
RAMP = motet.Task(Slope, loss=product, kind="values")  # x y w
NORMED = motet.Task(Normed)


def bowls(**clients: tuple[float, ...]) -> Federation:
    """Give each client copies of one example: `a=(curvature, optimum, copies)`."""

    def pair(
        curvature: float, optimum: float, copies: int = 1
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        x = np.full(copies, curvature**0.5, np.float32)
        return x, np.float32(x * optimum)

    train = {name: pair(*about) for name, about in clients.items()}
    return from_arrays(train, val=train, test=train)


def ramps(**clients: tuple[float, int]) -> Federation:
    """Give each client copies of one example whose loss has a fixed slope: `a=(slope, copies)`."""
    train = {
        name: (np.ones(copies), np.full(copies, slope)) for name, (slope, copies) in clients.items()
    }
    return from_arrays(train, val=train, test=train)


def classes(sizes: Sequence[int] = (7, 5, 9, 1), seed: int = 0) -> Federation:
    """Make unequal clients for `NORMED`."""
    rng = np.random.default_rng(seed)

    def draw(size: int) -> tuple[NDArray[Any], NDArray[Any]]:
        x = rng.normal(size=(size, 4)).astype(np.float32)
        return x, rng.integers(0, 3, size)

    train = {f"c{i}": draw(size) for i, size in enumerate(sizes)}
    return from_arrays(train, val=train, test=train, classes=3)


def finish(
    method: AnyMethod,
    task: Task,
    data: Federation,
    backend: str = "serial",
    rounds: int = 1,
    **settings: Any,
) -> Run:
    return motet.run(method, task, data, rounds=rounds, backend=backend, **settings)


def uploads(
    method: AnyMethod, task: Task, data: Federation, rounds: int = 0, **settings: Any
) -> dict[str, State]:
    """Return the model that each client holds after its next local training."""
    run = finish(method, task, data, rounds=rounds, **settings)
    return {client: run.personal(client, point="after_local") for client in run.clients}


def differ(a: Any, b: Any) -> bool:
    """Tell whether any tensor of two equal trees differs."""
    return any(not torch.equal(x, y) for x, y in zip(tree.leaves(a), tree.leaves(b), strict=True))
