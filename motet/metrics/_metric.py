"""`Metric`: what a score means, what it is defined for, and how it is computed on resamples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from motet.errors import RequestError

TaskKind = Literal[
    "binary", "multiclass", "ordinal", "sequence", "multilabel", "regression", "survival"
]
KINDS: tuple[TaskKind, ...] = (
    "binary",
    "multiclass",
    "ordinal",
    "sequence",
    "multilabel",
    "regression",
    "survival",
)
Needs = Literal["probabilities", "classes", "values", "curves"]
Array = NDArray[Any]
Compute = Callable[[Array, Array, Array], Array]
CELLS = 4_000_000  # weights held at once while resampling


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A score of one site's predictions.

    Predictions are what `Task.predict` returns: probabilities [examples, classes], probabilities
    [examples, labels], values, or survival curves [examples, time bins].

    Attributes:
        name: As in configs, tables and files.
        higher_is_better: Direction.
        kinds: Kinds of tasks for which it is defined.
        needs: What is read of the predictions: "probabilities", "classes" (the most likely one),
            "values" or survival "curves".
        low: Smallest possible value.
        high: Largest possible value.
        defined_if: What a site's examples must have; otherwise the score is NaN, and the site is
            left out and counted.
        compute: `(targets, predictions, weights [resamples, examples]) -> [resamples]`.
        about: One line for lists.
        own: Whether it is a user's function.

    >>> from motet import metrics
    >>> auroc = metrics.get("auroc")
    >>> targets, positive = np.array([0, 0, 1, 1]), np.array([0.1, 0.4, 0.35, 0.8])
    >>> predictions = np.stack([1 - positive, positive], axis=1)
    >>> auroc.score(targets, predictions)
    0.75
    >>> auroc.resampled(targets, predictions, counts=np.array([[1, 1, 1, 1], [2, 0, 0, 2]]))
    array([0.75, 1.  ])
    """

    name: str
    higher_is_better: bool
    kinds: frozenset[TaskKind]
    needs: Needs
    compute: Compute = field(repr=False, compare=False)
    low: float = 0.0
    high: float = 1.0
    defined_if: str = "at least one example"
    about: str = ""
    own: bool = False

    def score(self, targets: Any, predictions: Any, weights: Any = None) -> float:
        """Compute the value of one site; NaN where it is undefined.

        Args:
            targets: Labels, label sets, values, or (time, event) of each example.
            predictions: As `Task.predict` returns them.
            weights: How much each example counts; None: equally.
        """
        t, p = _arrays(targets, predictions)
        w = np.ones(len(t)) if weights is None else np.asarray(weights, float)
        return float(self._computed(t, p, w[None])[0])

    def resampled(self, targets: Any, predictions: Any, counts: Any) -> Array:
        """Compute the value of many resamples of one site's examples at once.

        Args:
            targets: As in `score`.
            predictions: As in `score`.
            counts: [resamples, examples]: how often each example is in each resample. A bootstrap
                is `rng.multinomial(n, np.full(n, 1 / n), size=resamples)`.

        Returns:
            One value per resample; NaN where the metric is undefined on it.
        """
        t, p = _arrays(targets, predictions)
        w = np.atleast_2d(np.asarray(counts))
        rows = max(1, CELLS // max(w.shape[1], 1))
        parts = [
            self._computed(t, p, w[start : start + rows].astype(float))
            for start in range(0, len(w), rows)
        ]
        return np.concatenate(parts) if parts else np.zeros(0)

    def is_better(self, value: float, than: float) -> bool:
        """Return whether one value is better than another.

        Args:
            value: A value of this metric.
            than: Another one.
        """
        return value > than if self.higher_is_better else value < than

    def _computed(self, t: Array, p: Array, w: Array) -> Array:
        if w.shape[1] != len(t):
            raise RequestError(
                f"{self.name} expects a weight for each of {len(t)} examples, got {w.shape[1]}."
            )
        if not len(t):
            return np.full(len(w), np.nan)
        # A sum of infinities of both signs has no value, which is what NaN says.
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            return np.asarray(self.compute(t, p, w), float)


def _arrays(targets: Any, predictions: Any) -> tuple[Array, Array]:
    t, p = np.asarray(targets), np.asarray(predictions)
    if len(t) != len(p):
        raise RequestError(
            f"a metric expects as many predictions as targets, got {len(p)} and {len(t)}."
        )
    return t, p.astype(float, copy=False)


def ratio(above: Array, below: Array) -> Array:
    """Divide; NaN where there is nothing to divide by."""
    empty = np.full(np.shape(above), np.nan)
    return np.asarray(np.divide(above, below, out=empty, where=below > 0))


def mean(rows: Array, w: Array) -> Array:
    """Average one value per example under every resample's weights."""
    # An example that is not in a resample must not spoil it, and 0 * inf would.
    spoiled = ~np.isfinite(rows)
    total = w @ np.where(spoiled, 0.0, rows)
    if spoiled.any():
        total = np.where((w[:, spoiled] > 0).any(1), _spoiled(rows[spoiled], w[:, spoiled]), total)
    return ratio(total, w.sum(1))


def _spoiled(rows: Array, w: Array) -> Array:
    return np.asarray(np.where(w > 0, rows, 0.0).sum(1))


def mean_of_defined(values: Array) -> Array:
    """Average over the last axis, leaving NaN out; NaN where nothing is left."""
    known = ~np.isnan(values)
    return ratio(np.where(known, values, 0.0).sum(-1), known.sum(-1).astype(float))
