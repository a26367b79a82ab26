"""Calibration: whether predicted probabilities come true as often as they say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from motet.metrics._classes import is_right
from motet.metrics._metric import Array, ratio

BINS = 15


@dataclass(frozen=True, eq=False)
class ReliabilityCurve:
    """Predicted and observed frequencies, by bins of equal width; empty bins are left out.

    Attributes:
        predicted: Mean predicted probability of each bin.
        observed: Share of class 1 in each bin; with more than two classes, share of right answers.
        counts: Examples in the bin.

    Example:
        >>> import numpy as np
        >>> curve = ReliabilityCurve(np.array([0.1, 0.8]), np.array([0.2, 0.7]), np.array([30, 10]))
        >>> f"{np.average(abs(curve.predicted - curve.observed), weights=curve.counts):.2f}"
        '0.10'
    """

    predicted: Array
    observed: Array
    counts: Array


def reliability_curve(targets: Any, predictions: Any, bins: int = BINS) -> ReliabilityCurve:
    """Compare predicted probabilities with what happened.

    With two classes the probability is that of class 1. With more it is that of the most likely
    class, and what happened is whether it was right.

    Args:
        targets: Classes.
        predictions: Probabilities [examples, classes].
        bins: Number of bins of equal width from 0 to 1.

    Returns:
        Predicted and observed shares, by bin.

    Example:
        >>> import numpy as np
        >>> p = np.array([[0.9, 0.1], [0.9, 0.1], [0.2, 0.8], [0.2, 0.8]])
        >>> curve = reliability_curve([0, 1, 1, 1], p, bins=5)
        >>> [(round(float(a), 2), float(b)) for a, b in zip(curve.predicted, curve.observed)]
        [(0.1, 0.5), (0.8, 1.0)]
    """
    t, p = np.asarray(targets), np.asarray(predictions, float)
    said, happened = _confidence(t, p)
    weights, sums, hits = _binned(said, happened, np.ones((1, len(t))), bins)
    used = weights[0] > 0
    return ReliabilityCurve(
        predicted=(sums[0] / np.maximum(weights[0], 1))[used],
        observed=(hits[0] / np.maximum(weights[0], 1))[used],
        counts=weights[0][used].astype(np.int64),
    )


def ece(bins: int, t: Array, p: Array, w: Array) -> Array:
    """Mean distance between predicted and observed frequency, weighted by the bins' examples."""
    if t.ndim > 1:  # label sets: every label of every example is a forecast
        w, t, p = np.repeat(w, t.shape[1], axis=1), t.reshape(-1), p.reshape(-1)
        said, happened = p, t.astype(float)
    else:
        said, happened = _confidence(t, p)
    spoiled = ~np.isfinite(said)
    _, sums, hits = _binned(np.where(spoiled, 0.0, said), happened, w, bins)
    value = ratio(np.abs(sums - hits).sum(1), w.sum(1))
    return np.where((w[:, spoiled] > 0).any(1), np.nan, value)


def _confidence(t: Array, p: Array) -> tuple[Array, Array]:
    if p.shape[1] == 2:
        return p[:, 1], (t == 1).astype(float)
    return p.max(1), is_right(t, p)


def _binned(said: Array, happened: Array, w: Array, bins: int) -> tuple[Array, Array, Array]:
    """Return weights, sums of probabilities and hits of each bin, [resamples, bins]."""
    edges = np.linspace(0.0, 1.0, bins + 1)
    place = np.searchsorted(edges[1:-1], said)  # a bin holds its right edge, as in scikit-learn
    there = (place[:, None] == np.arange(bins)).astype(float)
    return w @ there, w @ (there * said[:, None]), w @ (there * happened[:, None])
