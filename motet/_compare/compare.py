"""`motet.compare`: search hyperparameters if asked to, then run every method and seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from motet._compare.budget import Budget
from motet._compare.comparison import Comparison
from motet._compare.comparison_spec import ComparisonSpec, Methods
from motet._compare.leaving_out import check_leaving_out, with_contributions
from motet._compare.records import NoRecords, Records
from motet._compare.rules import Choice
from motet._compare.running import Job, outcomes
from motet._compare.searching import chosen_trials, described, search_left
from motet._compare.tuning import Search
from motet._core.points import Point
from motet._engine.observers import Watcher
from motet._engine.results import Failure
from motet._verdict.site_groups import Groups
from motet.data import Federation
from motet.task import Task


def compare(
    methods: Methods,
    task: Task,
    data: Federation,
    *,
    rounds: int,
    seeds: int | Sequence[int] = 3,
    evaluate_every: int | None = None,
    choose: Choice = "last",
    budget: Budget | None = None,
    tune: Search | int | None = None,
    point: Point | None = None,
    examples: bool = True,
    cross_site: bool = False,
    leave_one_out: bool = False,
    site_groups: Groups | str | Path | None = None,
    watcher: Watcher | None = None,
    **settings: Any,
) -> Comparison:
    """Run methods under the same conditions and score them on every client's test data.

    Args:
        methods: A list, or methods by label. Local, FedAvg and FedAvgFT are added if they are
            missing, with the optimizer, epochs and batch size of the first method.
        task: The network and its loss.
        data: The federation.
        rounds: Number of rounds of every method.
        seeds: Number of seeds (0, 1, ...), or a list of seeds. With one seed, the verdict is
            about this run only.
        evaluate_every: Rounds between validation scores; default: about 20 scores per run.
        choose: Which round's test scores count: the "last" one, or the one with the best
            "validation" mean.
        budget: Limits on what a run may spend; a run may then end before its last round.
        tune: A hyperparameter search on validation data, or its number of trials per method.
        point: Where in a round clients are scored; default: each method as its authors report it
            (`Method.reported`).
        examples: Whether to keep predictions and targets of single test examples, up to a limit;
            they are in `Row.evaluation.examples`.
        cross_site: Whether to score each client's final model on each client's test data, too: a
            study of every row. The time grows with the square of the number of clients.
        leave_one_out: Whether to run the best federated method again without each client, for what
            it contributes to the others (`Comparison.contributions`).
        site_groups: The group of each client, or a table file with the columns client and group,
            where clients are not independent of each other (hospitals of one owner, say): tests
            of means then count groups. Clients that are not named are independent.
        watcher: Receives every round and every result.
        **settings: Further options of `motet.run`: `cohort`, `backend`, ... With `backend="ray"`,
            methods and seeds are tasks, `actors` of them at once.

    Returns:
        Rows of every method and seed, with a table, a verdict and `_repr_html_`.

    Raises:
        RequestError: An option is wrong, or there is no method.
        DataError: No client has test data, or validation data are needed and missing.

    Example:
        >>> import motet
        >>> world = motet.testing.ragged()
        >>> table = motet.compare([motet.FedPer()], world.task, world.data, rounds=1, seeds=1)
        >>> table.labels
        ('local', 'fedavg', 'fedavg-ft', 'fedper')
    """
    spec = ComparisonSpec.of(
        methods,
        task,
        data,
        rounds=rounds,
        seeds=seeds,
        evaluate_every=evaluate_every,
        choose=choose,
        budget=budget,
        tune=tune,
        point=point,
        examples=examples,
        cross_site=cross_site,
        site_groups=site_groups,
        **settings,
    )
    if leave_one_out:
        check_leaving_out(spec)
    spec.warm_up()
    kept, watcher = NoRecords(), watcher or Watcher()
    spec = tuned_spec(spec, kept, Watcher())
    found = run_comparison(spec, kept, watcher)
    return with_contributions(spec, found, kept) if leave_one_out else found


def tuned_spec(spec: ComparisonSpec, kept: Records, watcher: Watcher) -> ComparisonSpec:
    """Run the hyperparameter search, if there is one, and return the spec with the best values."""
    if spec.search is None:
        return spec
    known = kept.tried()
    for tried in search_left(spec, known, watcher):
        known[tried.label, tried.number] = tried
        kept.record_trial(tried)
    return spec.after_search(chosen_trials(spec, known), *described(spec, known))


def run_comparison(spec: ComparisonSpec, kept: Records, watcher: Watcher) -> Comparison:
    """Run everything that has not finished, and assemble all results."""
    rows, failures = kept.finished(), list[Failure]()
    for outcome in outcomes(spec, _left(spec, set(rows)), watcher):
        if isinstance(outcome, Failure):
            failures.append(outcome)
        else:
            rows[outcome.label, outcome.seed] = outcome
            kept.record(outcome)
    return spec.result([rows[pair] for pair in spec.pairs() if pair in rows], failures)


def _left(spec: ComparisonSpec, finished: set[tuple[str, int]]) -> Iterator[Job]:
    """List what has no result yet; methods that train identically are trained once."""
    for labels in spec.groups():
        for seed in spec.seeds:
            left = tuple(label for label in labels if (label, seed) not in finished)
            if left:
                yield Job(left, seed)
