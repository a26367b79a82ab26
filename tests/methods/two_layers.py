"""A network of two numbers, whose training can be worked out by hand, and how to run on it."""

from __future__ import annotations

from typing import Any

import torch
from arithmetic import half_squared_error
from torch import Tensor, nn

import motet
from motet._core import tree
from motet._engine.federation import Run
from motet.data import Federation, from_arrays
from motet.method import AnyMethod
from motet.testing import World


class Product(nn.Module):
    """head * base * x."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Parameter(torch.ones(()))
        self.head = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.head * self.base * x


PRODUCT = motet.Task(Product, loss=half_squared_error, kind="values")


def products(**clients: tuple[float, float, int]) -> Federation:
    """Give each client copies of one example: `a=(x, y, copies)`."""
    train = {
        name: (torch.full((copies,), float(x)), torch.full((copies,), float(y)))
        for name, (x, y, copies) in clients.items()
    }
    return from_arrays(train, val=train, test=train)


def head_step(base: float, head: float, x: float, y: float, lr: float) -> float:
    """Take a gradient step on the head of (head base x - y)^2 / 2."""
    return head - lr * (head * base * x - y) * base * x


def base_step(base: float, head: float, x: float, y: float, lr: float) -> float:
    """Take a gradient step on the base of (head base x - y)^2 / 2."""
    return base - lr * (head * base * x - y) * head * x


def finish(
    method: AnyMethod, world: World, backend: str = "serial", rounds: int = 2, **settings: Any
) -> Run:
    """Run in one of the worlds of `motet.testing`."""
    return motet.run(method, world.task, world.data, rounds=rounds, backend=backend, **settings)


def everything(run: Run) -> dict[str, Any]:
    """Gather what a run has learnt."""
    return {"server": run.server, "clients": dict(run.clients)}


def differ(a: Any, b: Any) -> bool:
    """Tell whether two trees of the same names differ anywhere."""
    mine, theirs = dict(tree.flatten(a)), dict(tree.flatten(b))
    assert mine.keys() == theirs.keys()
    return any(not torch.equal(leaf, theirs[path]) for path, leaf in mine.items())
