"""Worlds in which a method's results can be worked out by hand, and how to run in them."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

import motet
from motet._core import tree
from motet.data import from_arrays

BACKENDS = ("serial", "vectorized")


class Slope(nn.Module):
    """w x."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return self.w * x


class Normed(nn.Module):
    """A body with batch normalisation, and a head."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 5, bias=False), nn.BatchNorm1d(5), nn.Tanh())
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        return self.head(self.body(x))


def half_squared_error(outputs, y):
    return (outputs - y).square() / 2


def product(outputs, y):
    """A loss whose gradient is the same everywhere."""
    return outputs * y


BOWL = motet.Task(Slope, loss=half_squared_error, kind="values")  # x^2 / 2 (w - y / x)^2
RAMP = motet.Task(Slope, loss=product, kind="values")  # x y w
NORMED = motet.Task(Normed)


def bowls(**clients):
    """Give each client copies of one example: `a=(curvature, optimum, copies)`."""

    def pair(curvature, optimum, copies=1):
        x = np.full(copies, curvature**0.5, np.float32)
        return x, np.float32(x * optimum)

    train = {name: pair(*about) for name, about in clients.items()}
    return from_arrays(train, val=train, test=train)


def ramps(**clients):
    """Give each client copies of one example whose loss has a fixed slope: `a=(slope, copies)`."""
    train = {
        name: (np.ones(copies), np.full(copies, slope)) for name, (slope, copies) in clients.items()
    }
    return from_arrays(train, val=train, test=train)


def classes(sizes=(7, 5, 9, 1), seed=0):
    """Make unequal clients for `NORMED`."""
    rng = np.random.default_rng(seed)

    def draw(size):
        x = rng.normal(size=(size, 4)).astype(np.float32)
        return x, rng.integers(0, 3, size)

    train = {f"c{i}": draw(size) for i, size in enumerate(sizes)}
    return from_arrays(train, val=train, test=train, classes=3)


def finish(method, task, data, backend="serial", rounds=1, **settings):
    return motet.run(method, task, data, rounds=rounds, backend=backend, **settings)


def uploads(method, task, data, rounds=0, **settings):
    """Return the model that each client holds after its next local training."""
    run = finish(method, task, data, rounds=rounds, **settings)
    return {client: run.personal(client, point="after_local") for client in run.clients}


def differ(a, b):
    """Tell whether any tensor of two equal trees differs."""
    return any(not torch.equal(x, y) for x, y in zip(tree.leaves(a), tree.leaves(b), strict=True))
