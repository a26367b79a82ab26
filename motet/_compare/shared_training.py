"""One training run shared by several entries of a comparison.

Methods that train identically (`Method.trains_as`) and differ only in how they serve clients share
one training run. Each is validated, scored and charged as if it had been run alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from motet._compare.budget import Spent
from motet._compare.cross_sites import cross_sites
from motet._compare.rules import Rules, has_validation, is_better
from motet._core import tree
from motet._core.studies import Study
from motet._engine.evaluation import Evaluation
from motet._engine.federation import Round, Run
from motet._engine.looks import Looks
from motet._engine.observers import Watcher
from motet._engine.records import jsonable
from motet._engine.results import Cost, Failure, Look, Row
from motet._engine.round_loop import RoundObserver, play_rounds
from motet.errors import one_line
from motet.privacy._ledger import spending

T = TypeVar("T")
SCORED = ("mean", "std", "decile", "worst", "loss")
CHARGED = ("bytes_up", "bytes_down", "gradients", "seconds")
logger = logging.getLogger(__name__)


class Entry:
    """One label and seed of a comparison, with its results so far.

    Its run does not have to be the one that trains, but it shares that run's store.
    """

    def __init__(self, label: str, seed: int, run: Run, rules: Rules) -> None:
        self.label, self.seed, self.run, self.rules = label, seed, run, rules
        self.curve: list[Look] = []
        self.best: Evaluation | None = None  # on the validation data
        self.judged: Evaluation | None = None
        self.failure = ""
        self._can_look = has_validation(run.setting.federation)
        self._looks = Looks(run, rules.point)
        self._look_gradients = 0.0

    @cached_property
    def _every(self) -> int:
        """Rounds between two looks; found out when it is needed, because it may fail."""
        return self.rules.evaluate_every or self._looks.interval()

    def attempt(self, work: Callable[..., T], *given: Any) -> T | None:
        """Call `work` unless this entry has failed; an error fails this entry only."""
        if self.failure:
            return None
        try:
            return work(*given)
        except Exception as error:
            self.fail(error)
            return None

    def fail(self, error: Exception) -> None:
        """Mark the entry as failed; the first reason is kept."""
        logger.debug("%s, seed %s failed", self.label, self.seed, exc_info=error)
        self.failure = self.failure or one_line(error)

    def attend(self, training: Training) -> Look | None:
        """Adopt the state after a round, and score the validation data if that is due."""
        self._take_over(training.run)
        spent = training.spent
        if not self._can_look or not self.rules.is_due(spent, self._every):
            return None
        seen = self.run.evaluate("val", self.rules.point)
        self.curve.append(look_at(seen, spent))
        self._look_gradients += self._looks.gradients()
        if self.rules.choose == "validation" and self._is_best(seen):
            # The test data is scored now because the next round overwrites this state. The round
            # was already chosen, on validation data alone.
            self.best, self.judged = seen, self._judge(seen)
        return self.curve[-1]

    def conclude(self, training: Training) -> Row:
        """Return the result of the run after its last round."""
        self._take_over(training.run)
        evaluation = self.judged or self._judge()
        divergence, clients = training.run.divergence, len(self.run.setting.federation.clients)
        if divergence.is_total(evaluation):
            raise FloatingPointError(divergence.failure(clients, evaluation))
        studies, complaint = _studies(self.run)
        if self.rules.cross_site and self.rules.judged_on == "test":
            studies = (*studies, cross_sites(self.run, self.rules.point))
        diverged = " ".join(divergence.sentences(clients, evaluation))
        remarks = (
            *self.run.warnings,
            diverged,
            self.rules.budget.overrun(training.spent),
            complaint,
            " ".join(evaluation.undefined_sentences()),
        )
        return Row(
            label=self.label,
            seed=self.seed,
            evaluation=evaluation,
            cost=replace(
                cost_of(training.run, training.spent), look_gradients=self._look_gradients
            ),
            warnings=tuple(remark for remark in remarks if remark),
            rounds=training.spent.rounds,
            curve=tuple(self.curve),
            notes=tuple(jsonable(training.run.notes)),
            studies=studies,
            faults=training.faults(),
            privacy=spending(self.run),
        )

    def _take_over(self, trained: Run) -> None:
        # Client states need no copying: both runs use the same store.
        self.run.server, self.run.rounds_done = trained.server, trained.rounds_done
        self.run.notes, self.run.extras = trained.notes, trained.extras

    def _is_best(self, seen: Evaluation) -> bool:
        if self.best is None or not self.best.rows:
            return True
        # The metric may be undefined for some clients after some rounds only.
        common = {row.client for row in self.best.rows} & {row.client for row in seen.rows}
        new, old = (
            replace(table, rows=tuple(row for row in table.rows if row.client in common))
            for table in (seen, self.best)
        )
        better = is_better(new.mean, old.mean, higher_is_better=seen.higher_is_better)
        return bool(common) and better

    def _judge(self, validation: Evaluation | None = None) -> Evaluation:
        on = self.rules.judged_on
        known = validation if on == "val" else None
        return known or self.run.evaluate(on, self.rules.point, examples=self.rules.example_runs)


class Training(RoundObserver):
    """The rounds that several entries share, and their cost.

    It ends with the planned rounds, with the budget, or when every entry has failed.
    """

    def __init__(self, entries: Sequence[Entry], watcher: Watcher) -> None:
        self.entries, self.watcher = entries, watcher
        self.run, self.rules = entries[0].run, entries[0].rules
        self.spent, self.lost, self.refused = Spent(), 0, list[tuple[str, str]]()

    def is_done(self) -> bool:
        """Return whether the budget is used up, or no entry is left."""
        return self.rules.is_over(self.spent) or all(one.failure for one in self.entries)

    def after_round(self, done: Round) -> None:
        """Add up the cost, and let every entry look at the new state."""
        self.spent = self.spent.after(done)
        self.lost += len(done.lost)
        self.refused += done.rejected.items()
        for one in self.entries:
            look = one.attempt(one.attend, self)
            if not one.failure:
                # Watchers receive the entry's own run, not the one that trained for it.
                self.watcher.round_done(one.label, one.seed, replace(done, run=one.run), look)

    def handles(self, error: Exception) -> bool:
        """Mark every entry as failed: they cannot go on without the shared run."""
        for one in self.entries:
            one.fail(error)
        return True

    def faults(self) -> dict[str, Any]:
        """Return the faults during training as JSON values; empty if there were none."""
        lost = {"lost_replies": self.lost} if self.lost else {}
        reasons = {"refused_uploads": len(self.refused), "refusals": dict(self.refused)}
        return {
            **lost,
            **(reasons if self.refused else {}),
            **self.run.divergence.faults(),
        }


def refused(label: str, seed: int, refusal: Exception, rules: Rules, watcher: Watcher) -> Failure:
    """Report an entry that cannot start."""
    failure = Failure(label, seed, one_line(refusal))
    watcher.began(label, seed, rules.rounds)
    watcher.failed(label, seed, failure.reason)
    return failure


def train_together(entries: Sequence[Entry], watcher: Watcher) -> list[Row | Failure]:
    """Train once for all entries, and return the result of each."""
    training = Training(entries, watcher)
    for one in entries:
        watcher.began(one.label, one.seed, one.rules.rounds)
    for _ in play_rounds(training.run, [training]):
        pass
    return [_concluded(one, training, watcher) for one in entries]


def _concluded(one: Entry, training: Training, watcher: Watcher) -> Row | Failure:
    row = one.attempt(one.conclude, training)
    if row is None:
        watcher.failed(one.label, one.seed, one.failure)
        return Failure(one.label, one.seed, one.failure)
    watcher.finished(one.label, one.seed, row)
    return row


def cost_of(run: Run, spent: Spent) -> Cost:
    """Return the total cost of a run, including the storage that its clients need."""
    store = run.setting.store
    # Clients that never trained have no state yet and do not count.
    kept = [tree.count_bytes(store.get(client)) for client in store]
    costs = {name: getattr(spent, name) for name in CHARGED}
    return Cost(**costs, private_bytes=float(np.mean(kept)) if kept else 0.0)


def look_at(seen: Evaluation, spent: Spent) -> Look:
    """Combine the validation scores after a round with the cost so far."""
    scores = {name: getattr(seen, name) for name in SCORED}
    costs = {name: getattr(spent, name) for name in CHARGED}
    also = {table.metric: table.mean for table in seen.also}
    return Look(round=seen.round, **scores, **costs, diverged=len(seen.diverged), also=also)


def _studies(run: Run) -> tuple[tuple[Study, ...], str]:
    """Return the method's studies of its run; an error becomes a warning and keeps the result."""
    try:
        return tuple(run.setting.method.studies(run)), ""
    except Exception as error:
        return (), f"{run.setting.method.name} could not chart this run: {one_line(error)}."
