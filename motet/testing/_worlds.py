"""Tiny worlds: a task and a federation each, small enough for a test, and awkward."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from motet._core.keys import Key
from motet.data._federation import Federation
from motet.data._sources.arrays import from_arrays
from motet.task import Task

FEATURES, CLASSES = 4, 3
Pair = tuple[NDArray[np.float32], NDArray[np.int64]]


@dataclass(frozen=True)
class World:
    """A task, and a federation that fits it.

    Attributes:
        name: Name of the world.
        task: The network and its loss.
        data: The federation.

    Example:
        >>> import motet
        >>> world = motet.testing.ragged()
        >>> world
        <World ragged: 6 clients>
        >>> sorted(motet.run(motet.FedAvg(), world.task, world.data, rounds=0).server)[:2]
        ['body.0.bias', 'body.0.weight']
    """

    name: str
    task: Task
    data: Federation

    def __repr__(self) -> str:
        return f"<World {self.name}: {len(self.data.clients)} clients>"


class TinyNet(nn.Module):
    """A body and a head; `between` is what comes between the body's two layers."""

    def __init__(self, *between: nn.Module, bias: bool = True) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(FEATURES, 5, bias=bias), *between, nn.Tanh())
        self.head = nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.body(x))
        return scores


def ragged() -> World:
    """Unequal clients: one example, one class, no validation data, no test data, two batches.

    Returns:
        The world.

    Example:
        >>> len(ragged().data.clients)
        6
    """
    return World("ragged", Task(build=TinyNet), ragged_data())


def batch_norm() -> World:
    """Ragged clients again, with batch statistics to keep apart.

    Returns:
        The world.

    Example:
        >>> batch_norm().name
        'batch_norm'
    """
    # No bias before the normalisation: its gradient is 0, and rounding would be all that is left.
    task = Task(build=lambda: TinyNet(nn.BatchNorm1d(5), bias=False))
    return World("batch_norm", task, ragged_data())


def dropout() -> World:
    """Ragged clients again, with units to drop.

    Returns:
        The world.

    Example:
        >>> dropout().name
        'dropout'
    """
    return World("dropout", Task(build=lambda: TinyNet(nn.Dropout(0.4))), ragged_data())


def linear() -> World:
    """Ragged clients again, for methods that solve for one linear layer.

    Returns:
        The world.

    Example:
        >>> linear().name
        'linear'
    """
    return World("linear", Task(build=lambda: nn.Linear(FEATURES, CLASSES)), ragged_data())


class Point(nn.Module):
    """A network that answers `w`, whatever the input."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        return self.w.expand(len(x), 1)


def half_squared(outputs: Tensor, y: Tensor) -> Tensor:
    """Compute (w - a)^2 / 2, whose gradient is w - a."""
    return (outputs.squeeze(-1) - y).square() / 2


def quadratic(targets: Mapping[str, Sequence[float]]) -> World:
    """Give each client the mean of (w - a)^2 / 2 over its targets a: results are arithmetic.

    Args:
        targets: The targets of each client.

    Returns:
        The world.

    Example:
        >>> quadratic({"a": [1.0], "b": [3.0]}).data.clients
        ('a', 'b')
    """
    train = {
        c: (np.zeros((len(a), 1), np.float32), np.asarray(a, np.float32))
        for c, a in targets.items()
    }
    task = Task(build=Point, loss=half_squared, kind="values")
    return World("quadratic", task, from_arrays(train, val=train, test=train, name="quadratic"))


WORLDS: Mapping[str, Callable[[], World]] = {
    "ragged": ragged,
    "batch_norm": batch_norm,
    "dropout": dropout,
}


SIZES = {  # client: examples to train on, to validate on, to test on
    "many": (40, 8, 9),
    "few": (7, 3, 4),
    "one": (1, 2, 3),
    "single": (5, 3, 4),
    "unchecked": (9, 0, 2),
    "untested": (6, 4, 0),
}


def ragged_data(seed: int = 0) -> Federation:
    """Make six clients that differ in all that has ever broken a simulation."""

    def draw(client: str, split: str, size: int) -> Pair:
        rng = Key(seed).fold("ragged", client, split).numpy()
        y = rng.integers(0, 1 if client == "single" else CLASSES, size)
        centres = np.eye(CLASSES, FEATURES)[y]
        return (centres + 0.5 * rng.normal(size=(size, FEATURES))).astype(np.float32), y

    train, val, test = (
        {client: draw(client, split, sizes[i]) for client, sizes in SIZES.items()}
        for i, split in enumerate(("train", "val", "test"))
    )
    return from_arrays(train, val, test, classes=CLASSES, name="ragged")
