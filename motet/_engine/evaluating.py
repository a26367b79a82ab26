"""Scores of a run's clients under the metrics of the run, as one table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from motet._engine.evaluation import Evaluation
from motet._engine.examples import ExampleTable, sampler
from motet._engine.records import ScoreRow, score_row
from motet._engine.run_spec import Point, RunSpec
from motet._engine.scoring import Score, Scored, about_task, scores, with_examples
from motet._engine.views import Inputs
from motet.metrics import Metric
from motet.metrics._registry import About, resolved

if TYPE_CHECKING:
    from motet._engine.federation import Run


def about(setting: RunSpec) -> About:
    """Say what metrics need to know about the task of a run."""
    federation = setting.federation
    y = federation.examples(federation.clients[0], "train").y
    return about_task(setting.task.criterion, federation.classes, y)


def metrics_of(setting: RunSpec) -> tuple[Metric, ...]:
    """Return the metrics of a run, the deciding one first; by default that of the kind of task."""
    return setting.metrics or resolved(None, about(setting))


def unscored(run: Run, split: str, point: Point) -> Evaluation:
    """Say what scores will be about."""
    setting = run.setting
    first, *others = (
        Evaluation(
            setting.method.name,
            metric.name,
            split,
            point,
            run.rounds_done,
            rows=(),
            higher=metric.higher_is_better,
            weigh=setting.weigh,
        )
        for metric in metrics_of(setting)
    )
    return replace(first, also=tuple(others))


def evaluation_of(run: Run, split: str, point: Point, scored: Iterable[Scored]) -> Evaluation:
    """Fill the tables of all metrics; clients without a value are listed beside them."""
    empty = unscored(run, split, point)
    listed = sorted(scored, key=lambda one: one.scores[0].client)
    tables = [
        _filled(table, [one.scores[number] for one in listed])
        for number, table in enumerate(empty.metrics)
    ]
    kept = {one.examples.client: one.examples for one in listed if one.examples is not None}
    sizes = {one.scores[0].client: one.examples_in_split for one in listed}
    complete = all(site.examples >= sizes[client] for client, site in kept.items())
    own = {metric.name: metric for metric in metrics_of(run.setting) if metric.own}
    examples = ExampleTable(about(run.setting), kept, complete, own) if kept else None
    return replace(tables[0], also=tuple(tables[1:]), examples=examples)


def rows_of(empty: Evaluation, scored: Iterable[Scored]) -> Iterator[ScoreRow]:
    """Yield a row per client and metric, as clients are scored."""
    tables = empty.metrics
    for one in scored:
        yield from (score_row(t, score) for t, score in zip(tables, one.scores, strict=True))


def _filled(table: Evaluation, found: Sequence[Score]) -> Evaluation:
    return replace(
        table,
        rows=tuple(score for score in found if not score.undefined),
        undefined=tuple(score for score in found if score.undefined),
    )


def scored(
    run: Run,
    split: str,
    point: Point,
    clients: Sequence[str],
    keep: Callable[[str, int], np.ndarray] | None = None,
) -> Iterator[Scored]:
    """Score clients, one after another, as their predictions come."""
    setting = run.setting
    federation = setting.federation
    there = with_examples(clients, lambda client: federation.size(client, split))
    down, info = run._served(tuple(there))
    predictions = run.backend.predict(down, info, Inputs(federation, split, there), point)
    return scores(
        predictions,
        lambda client: federation.examples(client, split).y,
        setting.task.criterion,
        split,
        metrics_of(setting),
        keep,
    )


def keeper(
    run: Run, split: str, clients: Sequence[str], runs: int
) -> Callable[[str, int], np.ndarray] | None:
    """Choose the clients whose examples are kept, if `runs` runs share the limit."""
    if not runs:
        return None
    setting = run.setting
    federation = setting.federation
    sizes = {client: federation.size(client, split) for client in clients}
    y = federation.examples(federation.clients[0], "train").y
    known = about(setting)
    columns = known.classes or len(known.times) or max(1, y[:1].numel())
    positions = max(1, y[:1].numel()) if known.kind == "sequence" else 1
    return sampler(sizes, columns, positions, int(runs))
