"""The search for hyperparameters of a contest, carried out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from motet.comparing.conditions import Contest, trial_label
from motet.comparing.rows import Failure, Row
from motet.comparing.rules import is_better
from motet.comparing.tuning import Trial
from motet.config.values import to_plain
from motet.watching import Watcher


@dataclass(frozen=True)
class Tried:
    """One point of a search, and what it gave."""

    label: str
    number: int  # 0 is the given configuration
    tuned: Mapping[str, Any]
    mean: float | None  # on the validation data; None: it failed
    reason: str = ""  # why


Known = dict[tuple[str, int], Tried]  # by label and number


def search_left(contest: Contest, known: Known, watcher: Watcher) -> Iterator[Tried]:
    """Try every point that is not known yet; methods that train alike are trained once."""
    points = _points(contest)
    trials = contest.trial_contest()
    for group in trials.groups():
        left = [name for name in group if points[name] not in known]
        for outcome in trials.run(left, trials.seeds[0], watcher) if left else []:
            yield _tried(contest, points[outcome.label], outcome)


def chosen_trials(contest: Contest, known: Known) -> dict[str, Trial]:
    """Choose for every label: the best, or what was given if nothing is better."""
    return {
        label: trials[_best([known[label, number].mean for number in range(len(trials))], contest)]
        for label, trials in contest.trials.items()
    }


def described(contest: Contest, known: Known) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Write a search down as values for JSON: how it was made, and what every try gave."""
    assert contest.search is not None
    trials = contest.trial_contest()
    how = {
        "kind": contest.search.kind,
        "tries": max(len(found) for found in contest.trials.values()),
        "rounds": trials.rules.rounds,
        "seed": trials.seeds[0],
    }
    return how, [asdict(known[point]) for point in _points(contest).values()]


def _points(contest: Contest) -> dict[str, tuple[str, int]]:
    return {
        trial_label(label, number): (label, number)
        for label, trials in contest.trials.items()
        for number in range(len(trials))
    }


def _tried(contest: Contest, point: tuple[str, int], outcome: Row | Failure) -> Tried:
    label, number = point
    tuned = to_plain(contest.trials[label][number].tuned)
    if isinstance(outcome, Failure):
        return Tried(label, number, tuned, None, outcome.reason)
    return Tried(label, number, tuned, outcome.evaluation.mean)


def _best(means: Sequence[float | None], contest: Contest) -> int:
    """Return the position of the best; the first of equals, and the first of all if all failed."""
    higher, best = contest.task.criterion.kind != "values", 0
    for number, mean in enumerate(means):
        if mean is not None and is_better(mean, means[best], higher_is_better=higher):
            best = number
    return best
