"""Small runs whose state is of every kind there is."""

from __future__ import annotations

from math import prod
from typing import Literal

from torch import nn

import motet
from motet.config import Experiment, ModelChoice, NamedData, RunChoice
from motet.data import Pathological
from motet.method import AnyMethod

METHODS: dict[str, AnyMethod] = {
    "fedper": motet.FedPer(personal=("3",)),  # private heads, and the buffers of a BatchNorm
    "fedadam": motet.FedAdam(),  # moments on the server
    "scaffold": motet.Scaffold(),  # controls on both sides
    "fedfomo": motet.FedFomo(models=2),  # affinities and models of single clients
}
STORES = ("memory", "disk")


def network(*, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Make a network with running statistics."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(prod(shape), 8), nn.BatchNorm1d(8), nn.Linear(8, classes)
    )


def world(name: str, store: Literal["memory", "disk"], rounds: int = 5) -> Experiment:
    """Make an experiment that saves after every round."""
    return Experiment(
        method=METHODS[name],
        data=NamedData(partition=Pathological(clients=6, classes=2)),
        model=ModelChoice(name="worlds:network"),
        run=RunChoice(
            rounds=rounds,
            cohort=0.5,
            store=store,
            evaluate_every=1,
            checkpoint_every=1,
            workers=1,
        ),
    )
