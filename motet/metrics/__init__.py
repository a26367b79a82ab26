"""Metrics: scores of a site's predictions, by name or of your own.

A `Metric` says what it is defined for, which direction is better and what it reads of predictions.
It is computed on one site's examples, or on many resamples of them at once.
"""

from __future__ import annotations

from motet.metrics._calibration import ReliabilityCurve, reliability_curve
from motet.metrics._metric import Metric, TaskKind
from motet.metrics._own import metric
from motet.metrics._registry import get, names

__all__ = [
    "Metric",
    "ReliabilityCurve",
    "TaskKind",
    "get",
    "metric",
    "names",
    "reliability_curve",
]
