"""Methods under the same conditions: the same splits, cohorts and initial weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from motet.checks import check_scorable
from motet.comparing.budget import Budget
from motet.comparing.comparison import Comparison
from motet.comparing.contestants import Contestant, contend
from motet.comparing.picture import FederationPicture
from motet.comparing.references import labelled, missing_references
from motet.comparing.rows import Failure, Row
from motet.comparing.rules import Choice, Rules, require_validation
from motet.comparing.tuning import Search, Trial
from motet.config.values import to_plain
from motet.data import Federation
from motet.errors import RequestError
from motet.federation import Run, start
from motet.keys import Key
from motet.method import AnyMethod
from motet.store import MemoryStore, Store
from motet.task import Task
from motet.watching import Watcher

Methods = Sequence[AnyMethod] | Mapping[str, AnyMethod]


@dataclass(frozen=True, kw_only=True)
class Contest:
    """A comparison that is ready to be run.

    Attributes:
        entries: Methods by label, references first.
        added: Labels of the references that were not asked for.
        rules: How long runs last, and by which round they are judged.
        search: How hyperparameters are searched before; None: they are as given.
        tuned: What a search chose, by label and dotted name.
        how: How it was searched, as values for JSON.
        tried: What every try gave, as values for JSON.
        settings: As in `motet.run`, without rounds and seed.
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

    @classmethod
    def of(
        cls,
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
        **settings: Any,
    ) -> Contest:
        """Complete the methods by the references, and check that every one can run."""
        check_scorable(data)
        if "store" in settings:
            raise RequestError("compare has no store=: every run needs one of its own.")
        if settings.get("backend") == "ray":  # its runs cannot share what clients keep
            raise RequestError(
                'a comparison runs in one process; use backend="vectorized", or run each method on '
                "Ray by itself."
            )
        asked = dict(methods) if isinstance(methods, Mapping) else labelled(methods)
        added = missing_references(asked)
        contest = cls(
            entries={**added, **asked},
            added=tuple(added),
            task=task,
            data=data,
            seeds=_listed(seeds),
            rules=Rules(
                rounds=rounds,
                evaluate_every=evaluate_every,
                choose=choose,
                budget=budget or Budget(),
            ),
            search=Search(trials=tune) if isinstance(tune, int) else tune,
            settings=settings,
        )
        contest.check()
        return contest

    def check(self) -> None:
        """Refuse now what would be refused after an hour."""
        self.rules.check(self.data)
        for label in self.entries:
            self.start(label, self.seeds[0])
        if self.search is not None:
            require_validation(self.data, "a search for hyperparameters")
            self.trial_contest().check()

    def start(self, label: str, seed: int, store: Store | None = None) -> Run:
        """Make a run of one method, ready for its first round."""
        settings = {**self.settings, "rounds": self.rules.rounds, "seed": seed, "store": store}
        return start(self.entries[label], self.task, self.data, **settings)

    def warm_up(self) -> None:
        """Run a round for nothing, so that no method is charged for what torch loads at first."""
        if self.rules.rounds:
            with suppress(Exception):  # what fails here fails again when it counts
                self.start(next(iter(self.entries)), self.seeds[0]).advance()

    def pairs(self) -> list[tuple[str, int]]:
        """List what has to be run: every label with every seed."""
        return [(label, seed) for label in self.entries for seed in self.seeds]

    def groups(self) -> list[tuple[str, ...]]:
        """Put labels together whose methods train alike."""
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
        """Run methods that train alike, with one seed; one that fails stops none of the others."""
        store = MemoryStore()
        contestants = [
            Contestant(label, seed, self.start(label, seed, store), self.rules) for label in labels
        ]
        return [self._completed(outcome) for outcome in contend(contestants, watcher)]

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
        """List the points of the search, by label."""
        return self.search.trials_of(self.entries, self._search_key) if self.search else {}

    def trial_contest(self) -> Contest:
        """Make the comparison of all these points, judged on validation data, on its own seed."""
        assert self.search is not None
        rounds = self.search.rounds or self.rules.rounds
        listed = self.trials.items()
        return replace(
            self,
            entries={
                trial_label(label, n): t.method for label, ts in listed for n, t in enumerate(ts)
            },
            seeds=(self._search_key.integer(bits=31),),
            rules=replace(self.rules, rounds=rounds, judged_on="val"),
            search=None,
        )

    def after_search(
        self,
        chosen: Mapping[str, Trial],
        how: Mapping[str, Any],
        tried: Sequence[Mapping[str, Any]],
    ) -> Contest:
        """Take over what a search chose, and remember how."""
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
        """Put rows together."""
        return Comparison(
            rows=tuple(rows),
            data=self.data.name,
            split=self.data.hash,
            rounds=self.rules.rounds,
            cohort=self.settings.get("cohort", 1.0),
            added=self.added,
            failures=tuple(failures),
            federation=FederationPicture.of(self.data),
            choose=self.rules.choose,
            budget=self.rules.budget.limits(),
            search=self.how,
            tried=self.tried,
        )


def trial_label(label: str, number: int) -> str:
    """Name one point of a search; the first is the given configuration."""
    return f"{label} #{number + 1}"


def _listed(seeds: int | Sequence[int]) -> tuple[int, ...]:
    listed = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    if not listed or len(set(listed)) < len(listed):
        raise RequestError(
            f"compare needs at least one seed, and each only once; got seeds={seeds!r}."
        )
    return listed
