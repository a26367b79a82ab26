"""What is the same for every run of a comparison."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from motet.comparing.budget import Budget, Spent
from motet.data import Federation
from motet.errors import DataError, RequestError, nearest

Choice = Literal["last", "validation"]
CHOICES = ("last", "validation")
LOOKS = 20  # per run, at most, and the last round


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How long a run lasts, when it is looked at, and by which round it is judged.

    Attributes:
        rounds: Planned, for every method.
        evaluate_every: Rounds between two looks at the validation data; None: about 20 looks.
        choose: "last" judges the last round, "validation" the one with the best validation mean,
            the first of several.
        budget: May end a run before the planned rounds do.
        judged_on: The split whose scores are the result; a search for hyperparameters judges on
            "val", and then nothing looks at the test data.
    """

    rounds: int
    evaluate_every: int | None = None
    choose: Choice = "last"
    budget: Budget = field(default_factory=Budget)
    judged_on: Literal["test", "val"] = "test"

    def __post_init__(self) -> None:
        if self.choose not in CHOICES:
            raise RequestError(
                f'choose= says by which round a run is judged; no rule is called "{self.choose}", '
                f"{nearest(self.choose, CHOICES)}."
            )
        if self.evaluate_every is not None and self.evaluate_every < 1:
            raise RequestError(
                f"evaluate_every= counts rounds, so it is 1 or more; got {self.evaluate_every}."
            )

    @property
    def every(self) -> int:
        """Rounds between two looks at the validation data."""
        return self.evaluate_every or max(1, math.ceil(self.rounds / LOOKS))

    def is_over(self, spent: Spent) -> bool:
        """Tell whether a run has come to its end."""
        return spent.rounds >= self.rounds or self.budget.is_used_up(spent)

    def is_due(self, spent: Spent) -> bool:
        """Tell whether to look at the validation data: now and then, and at the end."""
        if self.judged_on == "val" and self.choose == "last":
            return False  # they are the result, which comes once
        return spent.rounds % self.every == 0 or self.is_over(spent)

    def check(self, data: Federation) -> None:
        """Refuse to choose by validation data that do not exist."""
        if self.choose == "validation":
            require_validation(data, 'choose="validation"')


def has_validation(data: Federation) -> bool:
    """Tell whether any client has validation data."""
    return any(data.size(client, "val") for client in data.clients)


def require_validation(data: Federation, what: str) -> None:
    """Refuse data without validation examples, for something that cannot do without."""
    if not has_validation(data):
        raise DataError(
            f'{what} needs validation data, and no client of "{data.name}" has any; give some, or '
            "a share to cut from the training data (data.val = 0.2)."
        )


def is_better(value: float, best: float | None, *, higher_is_better: bool) -> bool:
    """Tell whether a validation mean beats the best so far; of equals, the first is the best."""
    if best is None or math.isnan(best):
        return True
    return value > best if higher_is_better else value < best
