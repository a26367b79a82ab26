"""Budgets: limits on what a run may spend, and the running total of what it has spent."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import NamedTuple

from motet._engine.federation import Round
from motet.errors import RequestError


class Spent(NamedTuple):
    """The cost of a run so far."""

    rounds: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    gradients: float = 0.0
    seconds: float = 0.0  # of training

    @property
    def bytes(self) -> int:
        """Bytes sent in both directions."""
        return self.bytes_up + self.bytes_down

    def after(self, done: Round) -> Spent:
        """Return the total after one more round."""
        return Spent(
            rounds=done.number,
            bytes_up=self.bytes_up + done.bytes_up,
            bytes_down=self.bytes_down + done.bytes_down,
            gradients=self.gradients + done.gradients,
            seconds=self.seconds + done.seconds,
        )


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Limits for every run of a comparison; None means no limit.

    A round starts only while every limit has something left. A run may therefore exceed its budget
    by less than the cost of its last round, and falls short of it only if its planned rounds end
    first.

    Attributes:
        gradients: Single-example gradient evaluations.
        bytes: Bytes sent, up and down together.
        seconds: Training time without evaluation; differs between machines.
        rounds: Training rounds. Schedules still span all planned rounds.

    Example:
        >>> Budget(gradients=1000).gradients
        1000
    """

    gradients: float | None = None
    bytes: int | None = None
    seconds: float | None = None
    rounds: int | None = None

    def __post_init__(self) -> None:
        for name, limit in self.limits().items():
            if not limit > 0:
                raise RequestError(f"Budget({name}=) must be above 0; got {limit}.", option=name)

    def limits(self) -> dict[str, float]:
        """Return the limits that are set, by name."""
        return {name: limit for name, limit in asdict(self).items() if limit is not None}

    def is_used_up(self, spent: Spent) -> bool:
        """Return whether no further round may start.

        Args:
            spent: What the run has spent so far.
        """
        return any(getattr(spent, name) >= limit for name, limit in self.limits().items())

    def overrun(self, spent: Spent) -> str:
        """Return a warning if the first round alone exceeded the budget, else "".

        Args:
            spent: What the first round spent.
        """
        if spent.rounds != 1:
            return ""
        for name, limit in self.limits().items():
            if getattr(spent, name) > limit:
                took = f"{getattr(spent, name):,.4g} {name}"
                return (
                    f"the budget is too small for a single round: it took {took} of {limit:,.4g}."
                )
        return ""
