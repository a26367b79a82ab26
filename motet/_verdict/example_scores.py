"""Scores of single test examples under any metric, for tests over a site's own examples.

The accuracy of a site is the mean of its examples. Other metrics are not means: an AUROC belongs
to pairs of examples. What an example contributes is then its jackknife pseudo-value: how much the
score changes without it. Pseudo-values have the score as their mean, and their spread is its
uncertainty; for a mean they are the examples themselves.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from motet._engine.evaluation import Evaluation
from motet._engine.examples import ExampleTable, SiteExamples
from motet._engine.results import Row
from motet._verdict.results import Results
from motet.errors import MotetError
from motet.metrics import Metric

BLOCKS = 60  # of examples that are left out together, at most
POINTS = 0.05  # a difference that matters, for scores between 0 and 1
PART = 0.1  # the same for other scores, as a part of the reference's


def example_scores(site: SiteExamples, metric: Metric) -> np.ndarray:
    """Return one value per example, or per block of examples; larger is better.

    Values that a metric does not have (of AUROC, where a block holds the only positive) are NaN.
    """
    count = site.examples
    if metric.name == "accuracy" and len(site.example) == count:
        return site.correct
    sign = 1.0 if metric.higher_is_better else -1.0
    if metric.name == "log_loss" and len(site.example) == count:
        return sign * site.loss
    if site.predictions is None:
        return np.full(count, np.nan)
    blocks = min(count, BLOCKS)
    counts = np.ones((blocks + 1, count))
    counts[np.arange(count) % blocks, np.arange(count)] = 0  # the last one keeps all
    *without, whole = sign * site.resampled(metric, counts)
    left = np.array(without)
    return np.asarray(whole + (blocks - 1) * (left.mean() - left))


def bounded(metric: str) -> bool:
    """Return whether an example's score is 0 or 1."""
    return metric == "accuracy"


def margin(comparison: Results, reference: str) -> float:
    """Return the gain below which a difference does not matter."""
    first = comparison.of(reference)[0].evaluation
    table = first.examples
    metric = None if table is None else _metric(table, first)
    if metric is None or (metric.low, metric.high) == (0.0, 1.0):
        return POINTS
    size = abs(comparison.mean(reference, lambda row: row.evaluation.mean))
    return PART * size if np.isfinite(size) and size > 0 else POINTS


def largest_gain(comparison: Results) -> float:
    """Return the largest difference between two scores that the metric allows."""
    first = comparison.rows[0].evaluation
    metric = None if first.examples is None else _metric(first.examples, first)
    return np.inf if metric is None else metric.high - metric.low


class ExampleScores:
    """The scores of all examples of a comparison, each computed once."""

    def __init__(self, comparison: Results) -> None:
        self.rows = {(row.label, row.seed): row for row in comparison.rows}
        self._known: dict[tuple[str, int, str], np.ndarray | None] = {}

    def differences(
        self, label: str, reference: str, clients: Sequence[str], seeds: Sequence[int]
    ) -> list[np.ndarray] | None:
        """Return, for each client, differences [examples, seeds]; None if they were not kept."""
        found = []
        for client in clients:
            columns = []
            for seed in seeds:
                ours, theirs = self._of(label, seed, client), self._of(reference, seed, client)
                if ours is None or theirs is None or len(ours) != len(theirs):
                    return None
                columns.append(ours - theirs)
            found.append(np.stack(columns, axis=1) if columns else np.zeros((0, 0)))
        return found

    def _of(self, label: str, seed: int, client: str) -> np.ndarray | None:
        key = (label, seed, client)
        if key not in self._known:
            self._known[key] = _scores(self.rows.get((label, seed)), client)
        return self._known[key]


def _scores(row: Row | None, client: str) -> np.ndarray | None:
    table = None if row is None else row.evaluation.examples
    if row is None or table is None or client not in table.sites:
        return None
    metric = _metric(table, row.evaluation)
    return None if metric is None else example_scores(table.sites[client], metric)


def _metric(table: ExampleTable, evaluation: Evaluation) -> Metric | None:
    """Find the metric; an own metric may be gone when results are read again."""
    direction = "higher" if evaluation.higher_is_better else "lower"
    for name in (evaluation.metric, f"{evaluation.metric}={direction}"):
        try:
            return table.metric(name)
        except MotetError:
            continue
    return None
