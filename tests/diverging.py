"""Worlds in which training diverges, wholly or for some clients."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor, nn

import motet
from motet._engine.faults import Faults
from motet.data import Federation, from_arrays
from motet.testing import World

CLIENTS = tuple(f"c{i}" for i in range(4))
HUGE = Faults(corrupt=("c1", "c3"), corruption="huge")


class Net(nn.Module):
    """Unbounded between its layers, so that what is too large goes on growing."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 5), nn.ReLU())
        self.head = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.body(x))
        return out


TASK = motet.Task(Net)
LINEAR = motet.Task(lambda: nn.Linear(4, 3))


def federation(scale: float = 1.0, whose: tuple[str, ...] = ()) -> Federation:
    """Four clients; the inputs of some may be as large as they like.

    Batches of 4 divide their rows, and halves of them: what fills a short batch has weight 0, but
    may overflow on the one backend and be left out by another.
    """
    rng = np.random.default_rng(0)
    splits: list[dict[str, Any]] = [{}, {}, {}]
    for number, client in enumerate(CLIENTS):
        for split, size in zip(splits, (8 + 8 * number, 4, 4), strict=True):
            x = rng.normal(size=(size, 4)) * (scale if client in whose else 1.0)
            split[client] = (x.astype(np.float32), np.arange(size) % 3)
    return from_arrays(*splits, classes=3, name="toy")


def one_diverges() -> World:
    """A world in which the training of client c2 diverges, and no other."""
    return World("one diverges", TASK, federation(1e37, ("c2",)))
