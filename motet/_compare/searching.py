"""Running a hyperparameter search: train every trial, and pick the best one of each method."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from motet._compare.comparison_spec import ComparisonSpec, trial_label
from motet._compare.rules import is_better
from motet._compare.running import Job, outcomes
from motet._compare.tuning import Trial
from motet._engine.observers import Watcher
from motet._engine.results import Failure, Row
from motet.config._values import to_plain


@dataclass(frozen=True)
class TrialResult:
    """One trial of a search, and its result."""

    label: str
    number: int  # 0 is the given configuration
    tuned: Mapping[str, Any]
    mean: float | None  # on validation data; None if it failed
    reason: str = ""  # why it failed


Known = dict[tuple[str, int], TrialResult]  # by label and number


def search_left(spec: ComparisonSpec, known: Known, watcher: Watcher) -> Iterator[TrialResult]:
    """Run every trial that has no result yet; methods that train identically are trained once."""
    points = _points(spec)
    trials = spec.trial_spec()
    groups = (tuple(n for n in group if points[n] not in known) for group in trials.groups())
    jobs = (Job(left, trials.seeds[0]) for left in groups if left)
    for outcome in outcomes(trials, jobs, watcher):
        yield _tried(spec, points[outcome.label], outcome)


def chosen_trials(spec: ComparisonSpec, known: Known) -> dict[str, Trial]:
    """Choose the best trial of every label; the given configuration wins ties."""
    return {
        label: trials[_best([known[label, number].mean for number in range(len(trials))], spec)]
        for label, trials in spec.trials.items()
    }


def described(spec: ComparisonSpec, known: Known) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Describe a search as JSON values: how it was made, and the result of every trial."""
    assert spec.search is not None
    trials = spec.trial_spec()
    how = {
        "kind": spec.search.kind,
        "tries": max(len(found) for found in spec.trials.values()),
        "rounds": trials.rules.rounds,
        "seed": trials.seeds[0],
    }
    return how, [asdict(known[point]) for point in _points(spec).values()]


def _points(spec: ComparisonSpec) -> dict[str, tuple[str, int]]:
    return {
        trial_label(label, number): (label, number)
        for label, trials in spec.trials.items()
        for number in range(len(trials))
    }


def _tried(spec: ComparisonSpec, point: tuple[str, int], outcome: Row | Failure) -> TrialResult:
    label, number = point
    tuned = to_plain(spec.trials[label][number].tuned)
    if isinstance(outcome, Failure):
        return TrialResult(label, number, tuned, None, outcome.reason)
    return TrialResult(label, number, tuned, outcome.evaluation.mean)


def _best(means: Sequence[float | None], spec: ComparisonSpec) -> int:
    """Return the position of the best mean; the first of equals, and 0 if all trials failed."""
    higher, best = spec.metrics[0].higher_is_better, 0
    for number, mean in enumerate(means):
        if mean is not None and is_better(mean, means[best], higher_is_better=higher):
            best = number
    return best
