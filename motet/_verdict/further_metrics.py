"""The table of all metrics, where a comparison has more than one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from motet._engine.evaluation import Evaluation
from motet._verdict.results import Results


@dataclass(frozen=True)
class MetricColumn:
    """One metric of every method, averaged over the seeds.

    Attributes:
        metric: Its name.
        higher_is_better: Direction.
        means: Mean over clients, by label.
        defined: Clients with a value.
        clients: Clients with data.
    """

    metric: str
    higher_is_better: bool
    means: dict[str, float]
    defined: int
    clients: int

    @property
    def best(self) -> frozenset[str]:
        """Labels with the best mean."""
        known = [value for value in self.means.values() if not np.isnan(value)]
        if not known:
            return frozenset()
        top = max(known) if self.higher_is_better else min(known)
        return frozenset(label for label, value in self.means.items() if value == top)


def clients_scored(evaluation: Evaluation) -> str:
    """Say what counts equally in means over clients."""
    if evaluation.weigh == "examples":
        return "clients count by their examples"
    return "all clients count equally"


def metric_columns(comparison: Results) -> tuple[MetricColumn, ...]:
    """Return all metrics of a comparison, the deciding one first; () if there is only one."""
    if not comparison.rows or not comparison.rows[0].evaluation.also:
        return ()
    return tuple(
        MetricColumn(
            metric=table.metric,
            higher_is_better=table.higher_is_better,
            means={label: _mean(comparison, label, table.metric) for label in comparison.labels},
            defined=len(table.rows),
            clients=len(table.rows) + len(table.undefined),
        )
        for table in comparison.rows[0].evaluation.metrics
    )


def _mean(comparison: Results, label: str, metric: str) -> float:
    return float(np.mean([row.evaluation.by(metric).mean for row in comparison.of(label)]))


def undefined_notes(columns: tuple[MetricColumn, ...]) -> tuple[str, ...]:
    """Say which metrics leave clients out."""
    return tuple(
        f"{column.metric} has a value for {column.defined} of {column.clients} clients; the others "
        "are left out of its means."
        for column in columns
        if column.defined < column.clients
    )
