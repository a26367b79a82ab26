"""Metrics of predicted numbers, for many resamples at once."""

from __future__ import annotations

import numpy as np

from motet.metrics._metric import Array, mean, mean_of_defined, ratio


def _errors(t: Array, p: Array) -> Array:
    return (p.reshape(t.shape) - t).reshape(len(t), -1)  # [examples, values]


def rmse(t: Array, p: Array, w: Array) -> Array:
    """Root of the mean squared error over all values."""
    return np.sqrt(mean(np.square(_errors(t, p)).mean(1), w))


def mae(t: Array, p: Array, w: Array) -> Array:
    """Mean absolute error over all values."""
    return mean(np.abs(_errors(t, p)).mean(1), w)


def r2(t: Array, p: Array, w: Array) -> Array:
    """Share of the variance explained, mean over the values of an example that vary."""
    errors, values = _errors(t, p), t.reshape(len(t), -1).astype(float)
    found = []
    for value, error in zip(values.T, errors.T, strict=True):
        centred = value - value.mean()  # sums of squares far from 0 would lose all digits
        spread = mean(np.square(centred), w) - np.square(mean(centred, w))
        floor = 1e-12 * np.square(centred).max(initial=0.0)
        found.append(1 - ratio(mean(np.square(error), w), np.where(spread > floor, spread, 0.0)))
    return mean_of_defined(np.stack(found, axis=-1))
