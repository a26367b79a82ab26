"""The specification of a comparison: same splits, cohorts and initial weights for every method."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from motet._compare.budget import Budget
from motet._compare.comparison import Comparison
from motet._compare.references import labelled, missing_references
from motet._compare.rules import Choice, Rules, require_validation
from motet._compare.shared_training import Entry, refused, train_together
from motet._compare.site_group_files import read_site_groups
from motet._compare.tuning import Search, Trial
from motet._core.keys import Key
from motet._core.points import Point
from motet._engine.federation import ExecutionPlan, Run, start
from motet._engine.looks import Looks, interval
from motet._engine.observers import Watcher
from motet._engine.preflight import check_scorable
from motet._engine.results import Failure, Row, over_common_clients
from motet._engine.scorability import check_metrics
from motet._engine.stores.memory import MemoryStore, Store
from motet._verdict.federation_summary import FederationSummary
from motet._verdict.site_groups import Groups, check_groups
from motet.config._values import to_plain
from motet.data import Federation
from motet.errors import RequestError, WorkError
from motet.method import AnyMethod
from motet.metrics import Metric
from motet.task import Task

LEAST_LOOKS = 5  # where looks choose the round that is judged
Methods = Sequence[AnyMethod] | Mapping[str, AnyMethod]


class TriedOut(NamedTuple):
    """A run that passed the trial before round 1, with its plan."""

    method: AnyMethod
    data: Federation
    rounds: int
    plan: ExecutionPlan | None


@dataclass(frozen=True, kw_only=True)
class ComparisonSpec:
    """A checked comparison, ready to run.

    Attributes:
        entries: Methods by label, references first.
        added: Labels of the references that were added automatically.
        rules: How long runs last, and which round counts.
        search: The hyperparameter search to run first; None keeps the given values.
        tuned: The values that a search chose, by label and dotted name.
        how: How the search was made, as JSON values.
        tried: The result of every trial, as JSON values.
        settings: Options of `motet.run`, without rounds and seed.
        site_groups: Client -> group, where clients are not independent of each other.
        tasks: Where runs are tasks on Ray, and how many at once; None: one after another, here.
        tried_out: What has passed the trial before round 1.
    """

    entries: Mapping[str, AnyMethod]
    added: tuple[str, ...] = ()
    task: Task
    data: Federation
    seeds: tuple[int, ...]
    rules: Rules
    search: Search | None = None
    tuned: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    how: Mapping[str, Any] = field(default_factory=dict)
    tried: tuple[Mapping[str, Any], ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    site_groups: Groups = field(default_factory=dict)
    tasks: Mapping[str, Any] | None = None
    tried_out: list[TriedOut] = field(default_factory=list, compare=False, repr=False)

    @classmethod
    def of(
        cls,
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
        site_groups: Groups | str | Path | None = None,
        **settings: Any,
    ) -> ComparisonSpec:
        """Add the missing references to the methods, and check that every method can run."""
        check_scorable(data)
        if "store" in settings:
            raise RequestError("compare does not accept store=: every run needs its own store.")
        settings, tasks = _without_ray(settings)
        asked = dict(methods) if isinstance(methods, Mapping) else labelled(methods)
        added = missing_references(asked)
        entries, listed = {**added, **asked}, _listed(seeds)
        spec = cls(
            entries=entries,
            added=tuple(added),
            task=task,
            data=data,
            seeds=listed,
            rules=Rules(
                rounds=rounds,
                evaluate_every=evaluate_every,
                choose=choose,
                budget=budget or Budget(),
                point=point,
                example_runs=len(entries) * len(listed) if examples else 0,
                cross_site=cross_site,
            ),
            search=Search(trials=tune) if isinstance(tune, int) else tune,
            settings=settings,
            site_groups=check_groups(read_site_groups(site_groups), data.clients),
            tasks=tasks,
        )
        spec.check()
        return spec.with_equal_looks()

    def check(self) -> None:
        """Start every entry once, so that bad requests fail now and not after an hour.

        An entry whose own code fails is reported when its turn comes and does not stop the others.
        """
        self.rules.check(self.data)
        for label in self.entries:
            with suppress(WorkError):
                self.start(label, self.seeds[0])
        if self.search is not None:
            require_validation(self.data, "a hyperparameter search")
            self.trial_spec().check()

    def with_equal_looks(self) -> ComparisonSpec:
        """Look at all methods equally often, where looks choose the round: each has its chances."""
        rules = self.rules
        if rules.choose != "validation" or rules.evaluate_every is not None:
            return self
        runs = (self.start(label, self.seeds[0]) for label in self.entries)
        widest = max(Looks(run, rules.point).interval() for run in runs)
        every = min(widest, interval(rules.rounds, looks=LEAST_LOOKS))
        return replace(self, rules=replace(rules, evaluate_every=every))

    def start(self, label: str, seed: int, store: Store | None = None) -> Run:
        """Return a run of one method, ready for its first round."""
        method = self.entries[label]
        settings = {**self.settings, "rounds": self.rules.rounds, "seed": seed, "store": store}
        asked = (method, self.data, self.rules.rounds)
        known = next((tried for tried in self.tried_out if tried[:3] == asked), None)
        if known is not None:  # another seed changes neither the work nor its shapes
            settings |= {"trial": False, "plan": known.plan}
        run = start(method, self.task, self.data, **settings)
        if known is None:
            self.tried_out.append(TriedOut(*asked, run.backend.plan))
        return run

    @cached_property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics of every run, the deciding one first."""
        asked, weigh = self.settings.get("metrics"), self.settings.get("weigh", "clients")
        return check_metrics(self.task, self.data, asked, weigh)

    def warm_up(self) -> None:
        """Run and discard one round, so that no method is charged for torch's first-use loading."""
        if self.rules.rounds:
            with suppress(Exception):  # a failure shows up again in the real run
                self.start(next(iter(self.entries)), self.seeds[0]).advance()

    def pairs(self) -> list[tuple[str, int]]:
        """List the runs of the comparison: every label with every seed."""
        return [(label, seed) for label in self.entries for seed in self.seeds]

    def groups(self) -> list[tuple[str, ...]]:
        """Group labels whose methods train identically."""
        groups: list[tuple[AnyMethod, list[str]]] = []
        for label, method in self.entries.items():
            training = method.trains_as()
            alike = next((labels for other, labels in groups if other == training), None)
            if alike is None:
                groups.append((training, [label]))
            else:
                alike.append(label)
        return [tuple(labels) for _, labels in groups]

    def run(self, labels: Sequence[str], seed: int, watcher: Watcher) -> list[Row | Failure]:
        """Run methods that train identically, with one seed; a failure does not stop the others."""
        store, entries, outcomes = MemoryStore(), list[Entry](), list[Row | Failure]()
        for label in labels:
            try:
                run = self.start(label, seed, store)
            except WorkError as refusal:
                outcomes.append(refused(label, seed, refusal, self.rules, watcher))
            else:
                entries.append(Entry(label, seed, run, self.rules))
        if entries:
            outcomes += train_together(entries, watcher)
        return [self._completed(outcome) for outcome in outcomes]

    def _completed(self, outcome: Row | Failure) -> Row | Failure:
        if isinstance(outcome, Failure):
            return outcome
        first = next(group[0] for group in self.groups() if outcome.label in group)
        return replace(
            outcome,
            tuned=self.tuned.get(outcome.label, {}),
            shared_with=first if outcome.label != first else None,
        )

    @cached_property
    def trials(self) -> dict[str, list[Trial]]:
        """The trials of the search, by label."""
        return self.search.trials_of(self.entries, self._search_key) if self.search else {}

    def trial_spec(self) -> ComparisonSpec:
        """Return a comparison of all trials, scored on validation data with a seed of its own."""
        assert self.search is not None
        rounds = self.search.rounds or self.rules.rounds
        listed = self.trials.items()
        return replace(
            self,
            entries={
                trial_label(label, n): t.method for label, ts in listed for n, t in enumerate(ts)
            },
            seeds=(self._search_key.integer(bits=31),),
            rules=replace(self.rules, rounds=rounds, judged_on="val", example_runs=0),
            search=None,
        )

    def after_search(
        self,
        chosen: Mapping[str, Trial],
        how: Mapping[str, Any],
        tried: Sequence[Mapping[str, Any]],
    ) -> ComparisonSpec:
        """Return the comparison with the values that a search chose, and a record of the search."""
        return replace(
            self,
            entries={label: chosen[label].method for label in self.entries},
            tuned={label: to_plain(trial.tuned) for label, trial in chosen.items()},
            how=how,
            tried=tuple(tried),
            search=None,
        )

    @property
    def _search_key(self) -> Key:
        return Key(self.seeds[0]).fold("search")

    def result(self, rows: Iterable[Row], failures: Iterable[Failure] = ()) -> Comparison:
        """Assemble the rows into a comparison."""
        return Comparison(
            rows=over_common_clients(tuple(rows)),
            data=self.data.name,
            split=self.data.hash,
            rounds=self.rules.rounds,
            cohort=self.settings.get("cohort", 1.0),
            added=self.added,
            failures=tuple(failures),
            federation=FederationSummary.of(self.data),
            choose=self.rules.choose,
            budget=self.rules.budget.limits(),
            search=self.how,
            tried=self.tried,
            site_groups=self.site_groups,
        )


def _without_ray(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Take what is about Ray out of a run's settings: whole runs are tasks, of one thread each."""
    if settings.get("backend") != "ray":
        return dict(settings), None
    if settings.get("state_dir") is not None:
        raise RequestError(
            "a comparison on Ray expects no state_dir=: what clients keep stays in the process of "
            "its run. Leave state_dir= out."
        )
    at_once = settings.get("actors", 2)
    if at_once < 1:
        raise RequestError(f"actors counts processes, so it is 1 or more; got {at_once}.")
    inside = {k: v for k, v in settings.items() if k not in ("address", "actors", "state_dir")}
    tasks = {"address": settings.get("address", "local"), "at_once": at_once}
    return {"workers": 1, **inside, "backend": "auto"}, tasks


def trial_label(label: str, number: int) -> str:
    """Return the label of one trial; the first trial is the given configuration."""
    return f"{label} #{number + 1}"


def _listed(seeds: int | Sequence[int]) -> tuple[int, ...]:
    listed = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    if not listed or len(set(listed)) < len(listed):
        raise RequestError(
            f"compare needs at least one seed and no duplicates; got seeds={seeds!r}."
        )
    return listed
