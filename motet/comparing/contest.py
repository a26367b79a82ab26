"""From methods to their comparison: the search for hyperparameters, then every run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from motet.comparing.budget import Budget
from motet.comparing.comparison import Comparison
from motet.comparing.conditions import Contest, Methods
from motet.comparing.rows import Failure, Row
from motet.comparing.rules import Choice
from motet.comparing.searching import Tried, chosen_trials, described, search_left
from motet.comparing.tuning import Search
from motet.data import Federation
from motet.task import Task
from motet.watching import Watcher


class Records(Protocol):
    """Where results are kept, so that a comparison can go on after an interruption."""

    def finished(self) -> dict[tuple[str, int], Row]:
        """Return what has finished, by label and seed."""
        ...

    def record(self, row: Row) -> None:
        """Keep the result of a run."""
        ...

    def tried(self) -> dict[tuple[str, int], Tried]:
        """Return what a search has tried, by label and number."""
        ...

    def record_trial(self, tried: Tried) -> None:
        """Keep what one point of a search gave."""
        ...


class Nowhere:
    """Keeps nothing: an interrupted comparison starts anew."""

    def finished(self) -> dict[tuple[str, int], Row]:
        return {}

    def record(self, row: Row) -> None:
        pass

    def tried(self) -> dict[tuple[str, int], Tried]:
        return {}

    def record_trial(self, tried: Tried) -> None:
        pass


def compare(
    methods: Methods,
    task: Task,
    data: Federation,
    *,
    rounds: int,
    seeds: int | Sequence[int] = 1,
    evaluate_every: int | None = None,
    choose: Choice = "last",
    budget: Budget | None = None,
    tune: Search | int | None = None,
    watcher: Watcher | None = None,
    **settings: Any,
) -> Comparison:
    """Run methods under the same conditions, and score them on every client's test data.

    Args:
        methods: A list, or methods by label. Local, FedAvg and FedAvgFT are added if they are
            missing, with the first method's optimizer, epochs and batch size.
        task: The network and its loss.
        data: The federation.
        rounds: How many, for every method.
        seeds: How many runs of each method (seeds 0, 1, ...), or the seeds themselves.
        evaluate_every: Rounds between two looks at the validation data; default: about 20 looks.
        choose: By which round a run is judged: "last", or the one that "validation" data prefer.
        budget: What a run may spend at most; it may then end before its last round.
        tune: A search for hyperparameters on validation data, or its number of tries per method.
        watcher: Hears of every round and every result.
        **settings: As in `motet.run`: `cohort`, `backend`, ...
    """
    contest = Contest.of(
        methods,
        task,
        data,
        rounds=rounds,
        seeds=seeds,
        evaluate_every=evaluate_every,
        choose=choose,
        budget=budget,
        tune=tune,
        **settings,
    )
    contest.warm_up()
    kept, watcher = Nowhere(), watcher or Watcher()
    return conduct(searched(contest, kept, Watcher()), kept, watcher)


def searched(contest: Contest, kept: Records, watcher: Watcher) -> Contest:
    """Search hyperparameters, if that was asked for, and take over what is best."""
    if contest.search is None:
        return contest
    known = kept.tried()
    for tried in search_left(contest, known, watcher):
        known[tried.label, tried.number] = tried
        kept.record_trial(tried)
    return contest.after_search(chosen_trials(contest, known), *described(contest, known))


def conduct(contest: Contest, kept: Records, watcher: Watcher) -> Comparison:
    """Run what has not finished, and put everything together."""
    rows, failures = kept.finished(), list[Failure]()
    for outcome in _outcomes(contest, set(rows), watcher):
        if isinstance(outcome, Failure):
            failures.append(outcome)
        else:
            rows[outcome.label, outcome.seed] = outcome
            kept.record(outcome)
    return contest.result([rows[pair] for pair in contest.pairs() if pair in rows], failures)


def _outcomes(
    contest: Contest, finished: set[tuple[str, int]], watcher: Watcher
) -> Iterator[Row | Failure]:
    for labels in contest.groups():
        for seed in contest.seeds:
            left = [label for label in labels if (label, seed) not in finished]
            if left:
                yield from contest.run(left, seed, watcher)
