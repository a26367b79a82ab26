"""What a run may spend at most, and what it has spent."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import NamedTuple

from motet.errors import RequestError
from motet.federation import Round


class Spent(NamedTuple):
    """What a run has taken until now."""

    rounds: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    gradients: float = 0.0
    seconds: float = 0.0  # of training

    @property
    def bytes(self) -> int:
        """Sent in both directions."""
        return self.bytes_up + self.bytes_down

    def after(self, done: Round) -> Spent:
        """Add a round."""
        return Spent(
            rounds=done.number,
            bytes_up=self.bytes_up + done.bytes_up,
            bytes_down=self.bytes_down + done.bytes_down,
            gradients=self.gradients + done.gradients,
            seconds=self.seconds + done.seconds,
        )


@dataclass(frozen=True, kw_only=True)
class Budget:
    """A limit for every method of a comparison; what is None is not limited.

    A round begins as long as something is left of everything. So a run may end above its budget,
    by less than its last round took, and never below it, unless the planned rounds end first.

    Attributes:
        gradients: Single-example gradient evaluations.
        bytes: Sent up and down together.
        seconds: Of training, without evaluation; not the same on the next machine.
        rounds: Of training; schedules still reckon with all rounds that were planned.
    """

    gradients: float | None = None
    bytes: int | None = None
    seconds: float | None = None
    rounds: int | None = None

    def __post_init__(self) -> None:
        for name, limit in self.limits().items():
            if not limit > 0:
                raise RequestError(f"a budget of {name} is above 0; got {limit}.")

    def limits(self) -> dict[str, float]:
        """Return what is limited, by name."""
        return {name: limit for name, limit in asdict(self).items() if limit is not None}

    def is_used_up(self, spent: Spent) -> bool:
        """Tell whether no further round may begin."""
        return any(getattr(spent, name) >= limit for name, limit in self.limits().items())

    def overrun(self, spent: Spent) -> str:
        """Say so if the first round alone was too much; else nothing."""
        if spent.rounds != 1:
            return ""
        for name, limit in self.limits().items():
            if getattr(spent, name) > limit:
                took = f"{getattr(spent, name):,.4g} {name}"
                return f"not a single round fits into the budget: one took {took} of {limit:,.4g}."
        return ""
