"""Rules that every run of a comparison follows: length, validation schedule, reported round."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from motet._compare.budget import Budget, Spent
from motet._core.points import POINTS, Point
from motet._engine.looks import interval, is_due
from motet.data import Federation
from motet.errors import DataError, RequestError, nearest

Choice = Literal["last", "validation"]
CHOICES = ("last", "validation")


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How long a run lasts, when it is validated, and which round's scores are its result.

    Attributes:
        rounds: Planned rounds of every method.
        evaluate_every: Rounds between validation scores; None: about 20 per run, and
            fewer for a method whose scoring would cost more than half of its training.
        choose: "last" reports the last round, "validation" the round with the best validation
            mean (the first one if several are equal).
        budget: Limits that may end a run before its planned rounds.
        point: Where in a round clients are scored; None: each method as its authors report it.
        example_runs: Runs that share the limit on kept test examples; 0: none are kept.
        cross_site: Whether each client's final model is scored on each client's test data, too.
        judged_on: The split whose scores are the result. A hyperparameter search uses "val", so
            that it never reads the test data.
    """

    rounds: int
    evaluate_every: int | None = None
    choose: Choice = "last"
    budget: Budget = field(default_factory=Budget)
    point: Point | None = None
    example_runs: int = 0
    cross_site: bool = False
    judged_on: Literal["test", "val"] = "test"

    def __post_init__(self) -> None:
        if self.choose not in CHOICES:
            raise RequestError(
                f'choose= must be "last" or "validation"; got "{self.choose}", '
                f"{nearest(self.choose, CHOICES)}."
            )
        if self.point is not None and self.point not in POINTS:
            raise RequestError(f'unknown point "{self.point}"; {nearest(self.point, POINTS)}.')
        if self.evaluate_every is not None and self.evaluate_every < 1:
            raise RequestError(
                f"evaluate_every= must be at least 1 round; got {self.evaluate_every}."
            )

    @property
    def every(self) -> int:
        """Rounds between validation scores."""
        return self.evaluate_every or interval(self.rounds)

    def is_over(self, spent: Spent) -> bool:
        """Return whether a run has ended."""
        return spent.rounds >= self.rounds or self.budget.is_used_up(spent)

    def is_due(self, spent: Spent, every: int) -> bool:
        """Return whether to score the validation data: every few rounds, and at the end."""
        if self.judged_on == "val" and self.choose == "last":
            return False  # validation scores are the result, computed once at the end
        return is_due(spent.rounds, every, self.rounds) or self.is_over(spent)

    def check(self, data: Federation) -> None:
        """Raise if rounds are chosen on validation data and there is none."""
        if self.choose == "validation":
            require_validation(data, 'choose="validation"')


def has_validation(data: Federation) -> bool:
    """Return whether any client has validation data."""
    return any(data.size(client, "val") for client in data.clients)


def require_validation(data: Federation, what: str) -> None:
    """Raise if no client has validation data; `what` names the feature that needs it."""
    if not has_validation(data):
        raise DataError(
            f'{what} needs validation data, but no client of "{data.name}" has any; provide some, '
            "or split a share off the training data (data.val = 0.2)."
        )


def is_better(value: float, best: float | None, *, higher_is_better: bool) -> bool:
    """Return whether a validation mean beats the best so far; of equal means the first wins."""
    if best is None or math.isnan(best):
        return True
    return value > best if higher_is_better else value < best
