"""Small worlds for comparisons, and what must not differ between two of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import nn

import motet
from motet._engine.results import Row
from motet.data import Federation, Split, from_arrays


def task() -> motet.Task:
    """A linear network of two layers."""
    return motet.Task(build=lambda: nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)))


def clouds(sizes: Sequence[int] = (12, 20, 30, 44)) -> dict[str, Any]:
    """Clients of unequal size with two classes of points."""
    rng = np.random.default_rng(0)
    clients = {}
    for number, size in enumerate(sizes):
        y = np.arange(size) % 2
        x = rng.normal(size=(size, 3)) + 2 * y[:, None] * rng.normal(size=3)
        clients[f"c{number}"] = (x.astype(np.float32), y)
    return clients


def world(val: float = 0.2) -> tuple[motet.Task, Federation]:
    """Return a task, and the clients with a part of their examples for validation and test."""
    return task(), from_arrays(clouds(), split=Split(val, 0.3))


def easy_world() -> tuple[motet.Task, Federation]:
    """Clients whose two classes lie far apart, so any training learns them."""
    rng = np.random.default_rng(0)
    clients = {}
    for number, size in enumerate((20, 30, 40)):
        y = np.arange(size) % 2
        x = 0.1 * rng.normal(size=(size, 3)) + (2 * y[:, None] - 1)
        clients[f"c{number}"] = (x.astype(np.float32), y)
    return task(), from_arrays(clients, split=Split(0.3, 0.3))


def numbers(row: Row) -> dict[str, Any]:
    """What a run gave, without how long it took and who trained for it."""
    written = row.to_dict()
    for timed in (written["cost"], *written["curve"]):
        del timed["seconds"]
    del written["shared_with"]
    return written
