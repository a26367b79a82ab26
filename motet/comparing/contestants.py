"""One training, and the entries of a comparison that it serves.

Methods that train alike (`Method.trains_as`) and differ only in how clients are served share one
training. Each is looked at, judged and charged as if it had been run alone.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from motet import tree
from motet.comparing.budget import Spent
from motet.comparing.rows import Cost, Failure, Look, Row
from motet.comparing.rules import Rules, has_validation, is_better
from motet.errors import one_line
from motet.evaluate import Evaluation
from motet.federation import Round, Run
from motet.privacy.ledger import spending
from motet.records import jsonable
from motet.studies import Study
from motet.watching import Watcher

T = TypeVar("T")
logger = logging.getLogger(__name__)


class Contestant:
    """An entry with a seed, and what is known of it so far.

    Its run need not do the training, but it has the store of the one that does.
    """

    def __init__(self, label: str, seed: int, run: Run, rules: Rules) -> None:
        self.label, self.seed, self.run, self.rules = label, seed, run, rules
        self.curve: list[Look] = []
        self.best: Evaluation | None = None  # on the validation data
        self.judged: Evaluation | None = None
        self.failure = ""
        self._can_look = has_validation(run.setting.federation)

    def attempt(self, work: Callable[..., T], *given: Any) -> T | None:
        """Do something, unless it failed before; if it fails, the others still go on."""
        if self.failure:
            return None
        try:
            return work(*given)
        except Exception as error:
            self.fail(error)
            return None

    def fail(self, error: Exception) -> None:
        """Give up, for the first reason there is."""
        logger.debug("%s, seed %s failed", self.label, self.seed, exc_info=error)
        self.failure = self.failure or one_line(error)

    def attend(self, training: Training) -> Look | None:
        """Take over the state after a round, and look at the validation data if that is due."""
        self._take_over(training.run)
        spent = training.spent
        if not self._can_look or not self.rules.is_due(spent):
            return None
        seen = self.run.evaluate(split="val")
        self.curve.append(look_at(seen, spent))
        if self.rules.choose == "validation" and self._is_best(seen):
            # The test data are scored now because the state will be gone. That this round is the
            # best so far was settled before, by validation data alone.
            self.best, self.judged = seen, self._judge(seen)
        return self.curve[-1]

    def conclude(self, training: Training) -> Row:
        """Judge the run after its last round."""
        self._take_over(training.run)
        evaluation = self.judged or self._judge()
        studies, complaint = _studies(self.run)
        remarks = (*self.run.warnings, self.rules.budget.overrun(training.spent), complaint)
        return Row(
            label=self.label,
            seed=self.seed,
            evaluation=evaluation,
            cost=training.cost(),
            warnings=tuple(remark for remark in remarks if remark),
            rounds=training.spent.rounds,
            curve=tuple(self.curve),
            notes=tuple(jsonable(training.run.notes)),
            studies=studies,
            faults=training.faults(),
            privacy=spending(self.run),
        )

    def _take_over(self, trained: Run) -> None:
        # Their store is the same one.
        self.run.server, self.run.finished = trained.server, trained.finished
        self.run.notes, self.run.extras = trained.notes, trained.extras

    def _is_best(self, seen: Evaluation) -> bool:
        best = None if self.best is None else self.best.mean
        return is_better(seen.mean, best, higher_is_better=seen.higher_is_better)

    def _judge(self, validation: Evaluation | None = None) -> Evaluation:
        on = self.rules.judged_on
        known = validation if on == "val" else None
        evaluation = known or self.run.evaluate(split=on)
        if not any(math.isfinite(score.loss) for score in evaluation.rows):
            raise FloatingPointError(
                "training diverged, so that no client has a finite prediction; lower the learning "
                "rate"
            )
        return evaluation


class Training:
    """The rounds that several contestants share, and what they took."""

    def __init__(self, run: Run, rules: Rules) -> None:
        self.run, self.rules = run, rules
        self.spent, self.lost, self.refused = Spent(), 0, list[tuple[str, str]]()

    @property
    def is_over(self) -> bool:
        """Whether all rounds have been run that are planned and can be paid for."""
        return self.rules.is_over(self.spent)

    def advance(self) -> Round:
        """Run one round."""
        done = self.run.advance()
        self.spent = self.spent.after(done)
        self.lost += len(done.lost)
        self.refused += done.rejected.items()
        return done

    def cost(self) -> Cost:
        """Say what it took."""
        return cost_of(self.run, self.spent)

    def faults(self) -> dict[str, Any]:
        """Say what went wrong on the way, as values for JSON; nothing if nothing did."""
        lost = {"lost_replies": self.lost} if self.lost else {}
        reasons = {"refused_uploads": len(self.refused), "refusals": dict(self.refused)}
        return {**lost, **(reasons if self.refused else {})}


def contend(contestants: Sequence[Contestant], watcher: Watcher) -> list[Row | Failure]:
    """Train once, for all of them, and say what became of each."""
    training = Training(contestants[0].run, contestants[0].rules)
    for one in contestants:
        watcher.began(one.label, one.seed, one.rules.rounds)
    while not training.is_over and not all(one.failure for one in contestants):
        try:
            done = training.advance()
        except Exception as error:
            for one in contestants:
                one.fail(error)
        else:
            _tell(contestants, training, done, watcher)
    return [_concluded(one, training, watcher) for one in contestants]


def _tell(
    contestants: Sequence[Contestant], training: Training, done: Round, watcher: Watcher
) -> None:
    for one in contestants:
        look = one.attempt(one.attend, training)
        if not one.failure:
            # Watchers hear of its own run, not of the one that trained for it.
            watcher.round_done(one.label, one.seed, replace(done, run=one.run), look)


def _concluded(one: Contestant, training: Training, watcher: Watcher) -> Row | Failure:
    row = one.attempt(one.conclude, training)
    if row is None:
        watcher.failed(one.label, one.seed, one.failure)
        return Failure(one.label, one.seed, one.failure)
    watcher.finished(one.label, one.seed, row)
    return row


def cost_of(run: Run, spent: Spent) -> Cost:
    """Add to what was spent what clients keep."""
    kept = [tree.count_bytes(run.setting.store.get(client)) for client in run.setting.store]
    return Cost(
        bytes_up=spent.bytes_up,
        bytes_down=spent.bytes_down,
        gradients=spent.gradients,
        seconds=spent.seconds,
        # A client that never trained keeps nothing yet.
        private_bytes=float(np.mean(kept)) if kept else 0.0,
    )


def look_at(seen: Evaluation, spent: Spent) -> Look:
    """Put together what is known after a round: the validation data, and what was spent."""
    return Look(
        round=seen.round,
        mean=seen.mean,
        std=seen.std,
        decile=seen.decile,
        worst=seen.worst,
        loss=seen.loss,
        bytes_up=spent.bytes_up,
        bytes_down=spent.bytes_down,
        gradients=spent.gradients,
        seconds=spent.seconds,
    )


def _studies(run: Run) -> tuple[tuple[Study, ...], str]:
    """Ask the method what to show; what it cannot show is a remark, and costs no result."""
    try:
        return tuple(run.setting.method.studies(run)), ""
    except Exception as error:
        return (), f"{run.setting.method.name} has no pictures of this run: {one_line(error)}."
