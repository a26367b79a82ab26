"""A small world, and its rounds, looks and rows, for those who only look on."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from torch import nn

import motet
from motet._engine.evaluation import Evaluation, Score
from motet._engine.federation import Round, start
from motet._engine.results import Cost, Look, Row
from motet.data import Federation, Split, from_arrays


@cache
def world(*, regression: bool = False, deep: bool = False) -> tuple[motet.Task, Federation]:
    """Four clients with a few points each, and a linear network of one or two layers."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4, 20, 3)).astype(np.float32)
    target = x.sum(-1)
    y = target if regression else (target > 0).astype(np.int64)
    data = from_arrays({f"c{i}": (x[i], y[i]) for i in range(4)}, split=Split(0.2, 0.3))
    loss = "mse" if regression else "cross_entropy"
    outputs = 1 if regression else 2
    layers = [nn.Linear(3, 3), nn.Linear(3, outputs)] if deep else [nn.Linear(3, outputs)]
    return motet.Task(build=lambda: nn.Sequential(*map(copy.deepcopy, layers)), loss=loss), data


@cache
def _first_round(regression: bool) -> Round:
    task, data = world(regression=regression)
    return start(motet.FedAvg(), task, data, rounds=1).advance()


def a_round(number: int, *, regression: bool = False) -> Round:
    return replace(_first_round(regression), number=number)


def a_look(number: int, mean: float) -> Look:
    spent: dict[str, Any] = {
        "bytes_up": 10 * number,
        "bytes_down": 10 * number,
        "gradients": 1.0,
        "seconds": 0.5,
    }
    return Look(round=number, mean=mean, std=0.1, decile=mean, worst=mean, loss=1.0, **spent)


def a_row(
    label: str, seed: int, values: Sequence[float] = (0.5, 0.75), method: str = "fedavg"
) -> Row:
    scores = tuple(Score(f"c{i}", 10, value, 1.0) for i, value in enumerate(values))
    cost = Cost(bytes_up=10, bytes_down=20, gradients=30.0, seconds=4.0, private_bytes=50.0)
    evaluation = Evaluation(method, "accuracy", "test", "after_adapt", 2, scores)
    return Row(label=label, seed=seed, evaluation=evaluation, cost=cost)
