"""The runs of a comparison: one after another here, or several at once as tasks on Ray."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Any, NamedTuple

from motet._compare.comparison_spec import ComparisonSpec
from motet._engine.observers import Watcher
from motet._engine.results import Failure, Row
from motet.errors import CapabilityError

_calls = count()


class Job(NamedTuple):
    """Methods that train identically, and a seed."""

    labels: tuple[str, ...]
    seed: int


def outcomes(
    spec: ComparisonSpec, jobs: Iterable[Job], watcher: Watcher
) -> Iterator[Row | Failure]:
    """Run every job, and yield its results when they are there."""
    if spec.tasks is None:
        for job in jobs:
            yield from spec.run(job.labels, job.seed, watcher)
    else:
        yield from _on_ray(spec, list(jobs), watcher, spec.tasks)


def _on_ray(
    spec: ComparisonSpec, jobs: list[Job], watcher: Watcher, tasks: Mapping[str, Any]
) -> Iterator[Row | Failure]:
    try:
        from motet._engine.ray_tasks import in_tasks, plain
    except ModuleNotFoundError as missing:
        raise CapabilityError(
            'backend="ray" needs Ray, which is not installed: pip install "motet[ray]".'
        ) from missing
    here = replace(spec, data=plain(spec.data), tasks=None)
    for job, found in in_tasks(_work, here, jobs, **tasks):
        for label in job.labels:
            watcher.began(label, job.seed, spec.rules.rounds)
        for outcome in found:
            _tell(watcher, outcome)
            yield outcome


def _work(spec: ComparisonSpec, job: Job) -> list[Row | Failure]:
    """Do a job, in a task. States of clients stay in its process, and end with it."""
    if _is_new_process():  # no method is charged for what torch loads on first use
        spec.warm_up()
    return spec.run(job.labels, job.seed, Watcher())


def _is_new_process() -> bool:
    """Return True when it is called for the first time."""
    return next(_calls) == 0


def _tell(watcher: Watcher, outcome: Row | Failure) -> None:
    if isinstance(outcome, Failure):
        watcher.failed(outcome.label, outcome.seed, outcome.reason)
    else:
        watcher.finished(outcome.label, outcome.seed, outcome)
