"""Methods run under the same conditions: the same splits, cohorts and initial weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from motet import tree
from motet.checks import check_scorable
from motet.comparison import Comparison, Cost, Row
from motet.data import Federation
from motet.errors import MotetError, RequestError
from motet.federation import Round, Run, start
from motet.method import AnyMethod
from motet.methods.fedavg import FedAvg
from motet.methods.fedavg_ft import FedAvgFT
from motet.methods.local import Local
from motet.task import Task

Methods = Sequence[AnyMethod] | Mapping[str, AnyMethod]
Watch = Callable[[str, int, Round], None]  # (label, seed, round)

# Every claim about personalization is relative to these.
REFERENCES: tuple[type[AnyMethod], ...] = (Local, FedAvg, FedAvgFT)
# What a reference that nobody asked for takes over from the first method.
SHARED_FIELDS = ("optimizer", "epochs", "steps", "batch_size", "schedule", "adapt_epochs")


def compare(
    methods: Methods,
    task: Task,
    data: Federation,
    *,
    rounds: int,
    seeds: int | Sequence[int] = 1,
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
        **settings: As in `motet.run`: `cohort`, `backend`, ...
    """
    contest = Contest.of(methods, task, data, rounds=rounds, seeds=seeds, **settings)
    contest.warm_up()
    return contest.result(contest.row(*pair) for pair in contest.pairs())


@dataclass(frozen=True, kw_only=True)
class Contest:
    """A comparison that is ready to be run.

    Attributes:
        entries: Methods by label, references first.
        added: Labels of the references that were not asked for.
        settings: As in `motet.run`, without the seed.
    """

    entries: Mapping[str, AnyMethod]
    added: tuple[str, ...]
    task: Task
    data: Federation
    rounds: int
    seeds: tuple[int, ...]
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
        **settings: Any,
    ) -> Contest:
        """Complete the methods by the references, and check that every one can run."""
        check_scorable(data)
        asked = dict(methods) if isinstance(methods, Mapping) else labelled(methods)
        added = missing_references(asked)
        contest = cls(
            entries={**added, **asked},
            added=tuple(added),
            task=task,
            data=data,
            rounds=rounds,
            seeds=_listed(seeds),
            settings=settings,
        )
        for label in contest.entries:
            contest.start(label, contest.seeds[0])  # refuses now, not after an hour
        return contest

    def start(self, label: str, seed: int) -> Run:
        """Make a run of one method, ready for its first round."""
        settings = {**self.settings, "rounds": self.rounds, "seed": seed}
        return start(self.entries[label], self.task, self.data, **settings)

    def warm_up(self) -> None:
        """Run a round for nothing, so that no method is charged for what torch loads at first."""
        if self.rounds:
            self.start(next(iter(self.entries)), self.seeds[0]).advance()

    def pairs(self) -> list[tuple[str, int]]:
        """List what has to be run: every label with every seed."""
        return [(label, seed) for label in self.entries for seed in self.seeds]

    def row(self, label: str, seed: int, watch: Watch | None = None) -> Row:
        """Run one method with one seed; `watch` hears of each round."""
        run, done = self.start(label, seed), []
        for _ in range(self.rounds):
            done.append(run.advance())
            if watch is not None:
                watch(label, seed, done[-1])
        return Row(
            label=label,
            seed=seed,
            evaluation=run.evaluate(split="test"),
            cost=_cost(run, done),
            warnings=run.warnings,
        )

    def result(self, rows: Iterable[Row]) -> Comparison:
        """Put rows together."""
        return Comparison(
            rows=tuple(rows),
            data=self.data.name,
            split=self.data.hash,
            rounds=self.rounds,
            cohort=self.settings.get("cohort", 1.0),
            added=self.added,
        )


def why_unsuited(method: AnyMethod, task: Task, data: Federation) -> str:
    """Say why a method makes no sense here: it refuses, or would silently be another one."""
    try:
        warnings = start(method, task, data, rounds=0).warnings
    except MotetError as refusal:
        return str(refusal)
    return warnings[0] if warnings else ""


def labelled(methods: Sequence[AnyMethod]) -> dict[str, AnyMethod]:
    """Name methods; a second one of the same name is "fedper (2)"."""
    entries: dict[str, AnyMethod] = {}
    for method in methods:
        same = sum(other.name == method.name for other in entries.values())
        entries[f"{method.name} ({same + 1})" if same else method.name] = method
    return entries


def missing_references(asked: Mapping[str, AnyMethod]) -> dict[str, AnyMethod]:
    """Make the references that were not asked for, trained as the first method is."""
    if not asked:
        raise RequestError("compare needs at least one method; none came.")
    first = next(iter(asked.values()))
    shared = {name: getattr(first, name) for name in SHARED_FIELDS}
    present = {type(method) for method in asked.values()}
    return {kind.name: kind(**shared) for kind in REFERENCES if kind not in present}


def _listed(seeds: int | Sequence[int]) -> tuple[int, ...]:
    listed = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    if not listed or len(set(listed)) < len(listed):
        raise RequestError(
            f"compare needs at least one seed, and each only once; got seeds={seeds!r}."
        )
    return listed


def _cost(run: Run, done: Sequence[Round]) -> Cost:
    # A client that never trained keeps nothing yet.
    trained = list(run.setting.store)
    kept = [tree.count_bytes(run.setting.store.get(client)) for client in trained]
    return Cost(
        bytes_up=sum(finished.bytes_up for finished in done),
        bytes_down=sum(finished.bytes_down for finished in done),
        gradients=sum(finished.gradients for finished in done),
        seconds=sum(finished.seconds for finished in done),
        private_bytes=float(np.mean(kept)) if kept else 0.0,
    )
