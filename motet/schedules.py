"""Factors on the client learning rate, one per round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


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

    >>> [round(Exponential(factor=0.5)(t, 3), 3) for t in range(3)]
    [1.0, 0.5, 0.25]
    """

    factor: float = 0.99

    def __call__(self, number: int, total: int) -> float:
        return float(self.factor**number)


@dataclass(frozen=True, kw_only=True)
class Linear:
    """Warm up over the first part of the rounds, then decay linearly towards 0.

    >>> [round(Linear(warmup=0.1)(t, 500), 5) for t in (0, 50, 499)]
    [0.0, 1.0, 0.00222]
    """

    warmup: float = 0.1

    def __call__(self, number: int, total: int) -> float:
        peak = self.warmup * total
        return number / peak if number < peak else (total - number) / max(total - peak, 1)
