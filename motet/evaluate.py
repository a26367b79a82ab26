"""Scores, one per client, and the numbers that are always reported together.

Every result says what it is: which method, which split, after which round, at which point of a
client's life.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from motet.criteria import Criterion
from motet.errors import DataError

TINY = 1e-30  # a probability of 0 costs this much in the log loss, not infinity


class Score(NamedTuple):
    """One client's result on its own data."""

    client: str
    examples: int  # labels scored: for sequences, every position
    value: float
    loss: float


@dataclass(frozen=True)
class Evaluation:
    """A table with one row per client that has data in the split.

    >>> rows = (Score("a", 10, 0.5, 1.0), Score("b", 90, 0.9, 0.2))
    >>> table = Evaluation("fedper", "accuracy", "test", "after_adapt", 5, rows)
    >>> [round(v, 2) for v in (table.mean, table.weighted_mean, table.std)]
    [0.7, 0.86, 0.2]
    >>> round(table.decile, 2), table.worst
    (0.54, 0.5)
    """

    method: str
    metric: str  # "accuracy" (higher is better) or "rmse" (lower is better)
    split: str
    point: str
    round: int
    rows: tuple[Score, ...]

    @property
    def higher_is_better(self) -> bool:
        """Whether a larger value is a better one."""
        return self.metric == "accuracy"

    @property
    def values(self) -> np.ndarray:
        """One value per client, in the order of `rows`."""
        return np.array([row.value for row in self.rows])

    @property
    def mean(self) -> float:
        """Mean over clients."""
        return float(self.values.mean())

    @property
    def weighted_mean(self) -> float:
        """Mean weighted by each client's number of examples in the split."""
        return float(np.average(self.values, weights=[row.examples for row in self.rows]))

    @property
    def std(self) -> float:
        """Population standard deviation over clients."""
        return float(self.values.std())

    @property
    def decile(self) -> float:
        """The value that nine of ten clients do better than (numpy's linear quantile)."""
        return float(np.quantile(self.values, 0.1 if self.higher_is_better else 0.9))

    @property
    def worst(self) -> float:
        """The worst client's value."""
        return float(self.values.min() if self.higher_is_better else self.values.max())

    @property
    def loss(self) -> float:
        """Mean over clients of the loss."""
        return float(np.mean([row.loss for row in self.rows]))

    def __getitem__(self, client: str) -> Score:
        for row in self.rows:
            if row.client == client:
                return row
        raise KeyError(client)

    def gains(self, reference: Evaluation) -> dict[str, float]:
        """Say how much better than `reference` each client is; negative where it is harmed."""
        sign = 1.0 if self.higher_is_better else -1.0
        theirs = {row.client: row.value for row in reference.rows}
        return {
            r.client: sign * (r.value - theirs[r.client]) for r in self.rows if r.client in theirs
        }

    def harmed(self, reference: Evaluation) -> float:
        """Return the share of clients that do worse than under `reference`."""
        gains = self.gains(reference)
        return sum(gain < 0 for gain in gains.values()) / len(gains)

    def summary(self) -> dict[str, Any]:
        """Gather the numbers that belong together, with what they are about."""
        return {
            "method": self.method,
            "metric": self.metric,
            "split": self.split,
            "point": self.point,
            "round": self.round,
            "clients": len(self.rows),
            "mean": self.mean,
            "weighted_mean": self.weighted_mean,
            "std": self.std,
            "decile": self.decile,
            "worst": self.worst,
            "loss": self.loss,
        }

    def __str__(self) -> str:
        title = (
            f"{self.method}: {self.metric} on {self.split}, {self.point}, round {self.round}, "
            f"{len(self.rows)} clients"
        )
        numbers = "  ".join(
            f"{name} {getattr(self, attribute):.4f}"
            for name, attribute in [
                ("mean", "mean"),
                ("weighted", "weighted_mean"),
                ("std", "std"),
                ("decile", "decile"),
                ("worst", "worst"),
            ]
        )
        return f"{title}\n{numbers}"

    def _repr_html_(self) -> str:
        from motet.reprs import evaluation_html

        return evaluation_html(self)


def scores(
    predictions: Iterable[tuple[str, Tensor]],
    labels: Callable[[str], Tensor],
    criterion: Criterion,
    split: str,
) -> Iterator[Score]:
    """Score predictions, client by client, as they come."""
    nobody = True
    for client, predicted in predictions:
        nobody = False
        yield score(client, predicted, labels(client), criterion)
    if nobody:
        raise DataError(
            f'no client has examples in the split "{split}", so there is nothing to score.'
        )


def metric_of(criterion: Criterion) -> str:
    """Name the metric that goes with a loss."""
    return "rmse" if criterion.kind == "values" else "accuracy"


def score(client: str, predicted: Tensor, y: Tensor, criterion: Criterion) -> Score:
    """Score one client: accuracy and log loss of probabilities, or the rmse of values."""
    if criterion.kind == "values":
        squared = (predicted.double().reshape(y.shape) - y.double()).square().mean().item()
        return Score(client, y.numel(), squared**0.5, squared)
    # A model that has diverged predicts NaN, and the largest of those would be class 0.
    right = ((predicted.argmax(-1) == y) & predicted.isfinite().all(-1)).double().mean().item()
    chosen = predicted.double().gather(-1, y.long().unsqueeze(-1)).clamp(min=TINY)
    return Score(client, y.numel(), right, -chosen.log().mean().item())


def with_examples(clients: Sequence[str], size: Callable[[str], int]) -> list[str]:
    """Keep the clients that have anything to score: no data is no score, not a perfect one."""
    return [client for client in sorted(clients) if size(client) > 0]
