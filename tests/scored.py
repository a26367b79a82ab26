"""Comparisons made of given scores, to ask what statistics make of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from motet._compare.comparison import Comparison
from motet._engine.evaluation import Evaluation, Score
from motet._engine.results import Cost, Failure, Row
from motet._verdict.federation_summary import FederationSummary

COST = Cost(bytes_up=1000, bytes_down=2000, gradients=300.0, seconds=4.0, private_bytes=50.0)


def scored(
    scores: Mapping[str, ArrayLike],
    *,
    metric: str = "accuracy",
    sizes: Sequence[int] | None = None,
    failures: Iterable[tuple[Any, ...]] = (),
    rounds: int = 5,
) -> Comparison:
    """Make a comparison of label -> scores [clients, seeds]; the label is the method's name."""
    rows = [
        Row(label=label, seed=seed, evaluation=evaluation(label, values, metric, rounds), cost=COST)
        for label, table in scores.items()
        for seed, values in enumerate(np.atleast_2d(np.asarray(table, dtype=float).T))
    ]
    return Comparison(
        rows=tuple(rows),
        data="toy",
        split="0" * 64,
        rounds=rounds,
        cohort=1.0,
        failures=tuple(Failure(*failure) for failure in failures),
        federation=FederationSummary(
            sizes={name(i): {"train": size} for i, size in enumerate(sizes or ())}
        ),
    )


def evaluation(
    method: str, values: Iterable[float], metric: str = "accuracy", number: int = 5
) -> Evaluation:
    rows = tuple(Score(name(i), 20, float(value), 0.0) for i, value in enumerate(values))
    return Evaluation(method, metric, "test", "after_adapt", number, rows)


def name(position: int) -> str:
    return f"c{position:02d}"


def noisy(
    rng: np.random.Generator,
    labels: Iterable[str],
    *,
    clients: int = 10,
    seeds: int = 3,
    means: Mapping[str, float] | Iterable[tuple[str, float]] = (),
    client: float = 0.05,
    seed: float = 0.01,
    rest: float = 0.02,
) -> dict[str, NDArray[np.float64]]:
    """Draw scores of methods that are equal but for `means`: noise of clients, seeds, and both."""
    means = dict(means)
    common = 0.8 + 0.05 * rng.normal(size=(clients, 1))  # some clients are harder for everybody
    return {
        label: common
        + means.get(label, 0.0)
        + client * rng.normal(size=(clients, 1))
        + seed * rng.normal(size=(1, seeds))
        + rest * rng.normal(size=(clients, seeds))
        for label in labels
    }
