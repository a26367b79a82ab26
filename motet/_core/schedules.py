"""Factors on the client learning rate, one per round."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

from motet.errors import RequestError


class Schedule(Protocol):
    """A factor on the learning rate for round `number` (from 0) of `total`."""

    def __call__(self, number: int, total: int) -> float:
        """Return the factor."""
        ...


@dataclass(frozen=True)
class Constant:
    """The same learning rate in every round."""

    def __call__(self, number: int, total: int) -> float:
        return 1.0


@dataclass(frozen=True, kw_only=True)
class Exponential:
    """Multiply by `factor` after every round.

    Attributes:
        factor: What a round multiplies the learning rate by.

    >>> [round(Exponential(factor=0.5)(t, 3), 3) for t in range(3)]
    [1.0, 0.5, 0.25]
    """

    factor: float = 0.99

    def __post_init__(self) -> None:
        if not 0 < self.factor < math.inf:
            raise RequestError(
                f"Exponential(factor=) must be above 0; got {self.factor}.", option="factor"
            )

    def __call__(self, number: int, total: int) -> float:
        return float(self.factor**number)


@dataclass(frozen=True, kw_only=True)
class Linear:
    """Warm up over the first part of the rounds, then decay linearly towards 0.

    Attributes:
        warmup: Share of the rounds in which the rate grows.

    >>> [round(Linear(warmup=0.1)(t, 500), 5) for t in (0, 50, 499)]
    [0.0, 1.0, 0.00222]
    """

    warmup: float = 0.1

    def __post_init__(self) -> None:
        _check_range(self, "warmup", 0, 1)

    def __call__(self, number: int, total: int) -> float:
        peak = self.warmup * total
        return number / peak if number < peak else (total - number) / max(total - peak, 1)


@dataclass(frozen=True, kw_only=True)
class MultiStep:
    """Multiply by `factor` at each milestone.

    Attributes:
        milestones: Shares of all rounds (below 1) or numbers of rounds (1 and above) after which
            the learning rate drops, in increasing order.
        factor: What it is multiplied by.

    >>> [round(MultiStep(milestones=(0.5, 0.75))(t, 8), 3) for t in (3, 4, 5, 6)]
    [1.0, 0.1, 0.1, 0.01]
    >>> [MultiStep(milestones=(2,), factor=0.5)(t, 8) for t in (1, 2)]
    [1.0, 0.5]
    """

    milestones: tuple[float, ...] = (0.5, 0.75)
    factor: float = 0.1

    def __post_init__(self) -> None:
        _check_range(self, "factor", 0, 1)
        placed = [float(m) for m in self.milestones]
        shares = [m for m in placed if m < 1]
        if not placed or min(placed) <= 0 or placed != sorted(set(placed)):
            raise RequestError(
                "MultiStep(milestones=) expects numbers above 0 in increasing order, such as "
                f"(0.5, 0.75); got {tuple(self.milestones)}."
            )
        if any(m > 1 and m != int(m) for m in placed):
            raise RequestError(
                "MultiStep(milestones=) expects whole numbers of rounds, or shares below 1; got "
                f"{tuple(self.milestones)}."
            )
        if shares and len(shares) < len(placed):
            raise RequestError(
                "MultiStep(milestones=) expects either shares of the rounds (below 1) or numbers "
                f"of rounds (1 and above); got both: {tuple(self.milestones)}."
            )

    def __call__(self, number: int, total: int) -> float:
        passed = sum(number >= (m * total if m < 1 else m) for m in self.milestones)
        return float(self.factor**passed)


@dataclass(frozen=True, kw_only=True)
class Cosine:
    """Warm up linearly, then follow half a cosine wave from 1 down to `floor`.

    Attributes:
        warmup: Share of the rounds in which the learning rate rises.
        floor: Factor that the last round approaches.

    >>> [round(Cosine()(t, 4), 3) for t in range(4)]
    [1.0, 0.854, 0.5, 0.146]
    """

    warmup: float = 0.0
    floor: float = 0.0

    def __post_init__(self) -> None:
        _check_range(self, "warmup", 0, 1)
        _check_range(self, "floor", 0, 1)

    def __call__(self, number: int, total: int) -> float:
        peak = self.warmup * total
        if number < peak:
            return (number + 1) / (math.ceil(peak) + 1)
        done = (number - peak) / max(total - peak, 1)
        return self.floor + (1 - self.floor) * (1 + math.cos(math.pi * done)) / 2


def _check_range(schedule: Any, name: str, low: float, high: float) -> None:
    value = getattr(schedule, name)
    if not low <= value <= high:
        raise RequestError(
            f"{type(schedule).__name__}({name}=) must be between {low:g} and {high:g}; "
            f"got {value}.",
            option=name,
        )
