"""Running a hyperparameter search: train every trial, and pick the best one of each method."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

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
    # Value and examples of each client for which the metric is defined; a value that is not finite
    # is None.
    scores: Mapping[str, tuple[float | None, int]] = field(default_factory=dict)


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
        label: trials[_best([one.mean for one in _comparable(spec, known, label)], spec)]
        for label, trials in spec.trials.items()
    }


def _comparable(spec: ComparisonSpec, known: Known, label: str) -> list[TrialResult]:
    """Return the trials of a label, with means over the clients that all of them have values for.

    A metric of predictions may be undefined for some clients in some trials only; then a trial
    would win because its hardest clients have no value.
    """
    trials = [known[label, number] for number in range(len(spec.trials[label]))]
    scored = [set(one.scores) for one in trials if one.scores]
    common = set.intersection(*scored) if scored else set()
    if not common or all(clients == common for clients in scored):
        return trials
    by_examples = spec.settings.get("weigh", "clients") == "examples"
    return [
        replace(one, mean=_mean_over(one, sorted(common), by_examples=by_examples))
        if one.scores
        else one
        for one in trials
    ]


def _mean_over(one: TrialResult, clients: Sequence[str], *, by_examples: bool) -> float:
    values = [one.scores[client][0] for client in clients]
    weights = [float(one.scores[client][1]) if by_examples else 1.0 for client in clients]
    return float(np.average([math.nan if v is None else v for v in values], weights=weights))


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
    tried = [one for label in spec.trials for one in _comparable(spec, known, label)]
    return how, [_without_scores(one) for one in tried]


def _without_scores(one: TrialResult) -> dict[str, Any]:
    return {key: value for key, value in asdict(one).items() if key != "scores"}


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
    scores = {
        score.client: (score.value if math.isfinite(score.value) else None, score.examples)
        for score in outcome.evaluation.rows
    }
    return TrialResult(label, number, tuned, outcome.evaluation.mean, scores=scores)


def _best(means: Sequence[float | None], spec: ComparisonSpec) -> int:
    """Return the position of the best mean; the first of equals, and 0 if all trials failed."""
    higher, best = spec.metrics[0].higher_is_better, 0
    for number, mean in enumerate(means):
        if mean is not None and is_better(mean, means[best], higher_is_better=higher):
            best = number
    return best
