"""A network of two numbers, whose training can be worked out by hand, and how to run on it."""

from __future__ import annotations

import torch
from arithmetic import half_squared_error
from torch import nn

import motet
from motet._core import tree
from motet.data import from_arrays


class Product(nn.Module):
    """head * base * x."""

    def __init__(self):
        super().__init__()
        self.base = nn.Parameter(torch.ones(()))
        self.head = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return self.head * self.base * x


PRODUCT = motet.Task(Product, loss=half_squared_error, kind="values")


def products(**clients):
    """Give each client copies of one example: `a=(x, y, copies)`."""
    train = {
        name: (torch.full((copies,), float(x)), torch.full((copies,), float(y)))
        for name, (x, y, copies) in clients.items()
    }
    return from_arrays(train, val=train, test=train)


def head_step(base, head, x, y, lr):
    """Take a gradient step on the head of (head base x - y)^2 / 2."""
    return head - lr * (head * base * x - y) * base * x


def base_step(base, head, x, y, lr):
    """Take a gradient step on the base of (head base x - y)^2 / 2."""
    return base - lr * (head * base * x - y) * head * x


def finish(method, world, backend="serial", rounds=2, **settings):
    """Run in one of the worlds of `motet.testing`."""
    return motet.run(method, world.task, world.data, rounds=rounds, backend=backend, **settings)


def everything(run):
    """Gather what a run has learnt."""
    return {"server": run.server, "clients": dict(run.clients)}


def differ(a, b):
    """Tell whether two trees of the same names differ anywhere."""
    mine, theirs = dict(tree.flatten(a)), dict(tree.flatten(b))
    assert mine.keys() == theirs.keys()
    return any(not torch.equal(leaf, theirs[path]) for path, leaf in mine.items())
