"""Exact medians over sites by questions: how many of your values are at most these numbers?

A median needs the order of values, which sums do not have. Every question cuts the range in which
the median may lie into `PARTS`, and every answer is a count. Values that are written with a few
decimals lie on a grid, so one to three questions are enough; for others the grid is that of all
doubles. See decision 76.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motet.errors import DataError

Floats = NDArray[np.float64]
PARTS = 256  # into which a question cuts a range
MOST_DECIMALS = 9
WHOLE = 2.0**53  # up to here doubles count in ones
_SIGN = 1 << 63


def decimals_of(values: Floats) -> int | None:
    """Return how many decimals the values are written with; None if there are too many.

    >>> decimals_of(np.asarray([1.5, 2.25])), decimals_of(np.asarray([1 / 3]))
    (2, None)
    """
    for decimals in range(MOST_DECIMALS + 1):
        scaled = values * 10.0**decimals
        if not (np.abs(scaled) < WHOLE).all():
            return None
        if (np.rint(scaled) / 10.0**decimals == values).all():
            return decimals
    return None


@dataclass(frozen=True)
class Bracket:
    """Where the two middle values of one input may lie, as places on a grid; ends are included.

    Attributes:
        known: Number of values at all sites.
        decimals: The grid is that of numbers with so many decimals; None: of all doubles.
        lower: Of the lower middle value.
        upper: Of the upper one, which is the same if the number of values is odd.
    """

    known: int
    decimals: int | None
    lower: tuple[int, int]
    upper: tuple[int, int]

    @classmethod
    def of(cls, known: int, low: float, high: float, decimals: int | None) -> Bracket:
        """Start with the range of all values."""
        start = cls(known, decimals, (0, 0), (0, 0))
        ends = (start.place(low), start.place(high))
        return replace(start, lower=ends, upper=ends)

    def place(self, value: float) -> int:
        """Return the place of a value on the grid."""
        if self.decimals is not None:
            return round(value * 10.0**self.decimals)
        bits = int(np.float64(value).view(np.uint64))
        return (1 << 64) - 1 - bits if bits & _SIGN else bits | _SIGN

    def value(self, place: int) -> float:
        """Return the value at a place; with decimals it is the double nearest to the decimal."""
        if self.decimals is not None:
            return place / 10.0**self.decimals
        bits = place & ~_SIGN if place & _SIGN else (1 << 64) - 1 - place
        return float(np.uint64(bits).view(np.float64))

    @property
    def median(self) -> float | None:
        """The median, once both middle values are known."""
        (low, last), (high, end) = self.lower, self.upper
        return (self.value(low) + self.value(high)) / 2 if low == last and high == end else None

    @property
    def asked(self) -> list[int]:
        """The places whose counts narrow the bracket, in order; none once it is settled."""
        return sorted({*_cuts(*self.lower), *_cuts(*self.upper)})

    def narrowed(self, at_most: list[int]) -> Bracket:
        """Use the answer: how many values of all sites are at most at each place asked for."""
        counts = dict(zip(self.asked, at_most, strict=True))
        ranks = (self.known - 1) // 2, self.known // 2
        lower, upper = (
            _part(ends, counts, rank)
            for ends, rank in zip((self.lower, self.upper), ranks, strict=True)
        )
        return replace(self, lower=lower, upper=upper)


def _cuts(low: int, high: int) -> list[int]:
    width = high - low + 1
    parts = min(PARTS, width)
    return [low + width * part // parts - 1 for part in range(1, parts)]


def _part(ends: tuple[int, int], counts: Mapping[int, int], rank: int) -> tuple[int, int]:
    low, high = ends
    for place in _cuts(low, high):
        if counts[place] > rank:
            return low, place
        low = place + 1
    return low, high


@dataclass(frozen=True)
class Question:
    """What the sites are asked: how many values of each input are at most some numbers.

    Attributes:
        brackets: By input.
    """

    brackets: Mapping[str, Bracket]

    @property
    def medians(self) -> dict[str, float] | None:
        """The medians, if nothing is left to ask."""
        found = {name: bracket.median for name, bracket in self.brackets.items()}
        known = {name: median for name, median in found.items() if median is not None}
        return known if len(known) == len(found) else None

    @property
    def thresholds(self) -> dict[str, list[float]]:
        """The numbers that sites compare their values with, by input."""
        return {
            name: [bracket.value(place) for place in bracket.asked]
            for name, bracket in self.brackets.items()
            if bracket.asked
        }

    @property
    def id(self) -> str:
        """A hash that only this question has."""
        return question_id(self.thresholds)

    def narrowed(self, at_most: Mapping[str, list[int]]) -> Question:
        """Use the answers, summed over sites."""
        return Question(
            {
                name: bracket.narrowed(at_most[name]) if bracket.asked else bracket
                for name, bracket in self.brackets.items()
            }
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the question as JSON values: the state of the search, and what sites answer."""
        return {
            "brackets": {name: vars(bracket) for name, bracket in self.brackets.items()},
            "thresholds": self.thresholds,
        }

    @classmethod
    def from_dict(cls, written: Mapping[str, Any]) -> Question:
        """Read a question from `to_dict`."""
        try:
            return cls(
                {
                    str(name): Bracket(
                        int(bracket["known"]),
                        bracket["decimals"],
                        (int(bracket["lower"][0]), int(bracket["lower"][1])),
                        (int(bracket["upper"][0]), int(bracket["upper"][1])),
                    )
                    for name, bracket in written["brackets"].items()
                }
            )
        except (KeyError, TypeError, ValueError, AttributeError, IndexError):
            raise DataError("this is not a question about medians.") from None


def thresholds_in(written: Any) -> dict[str, list[float]]:
    """Read the numbers that a site is asked about; anything but finite numbers is refused."""
    try:
        found = {str(name): [float(x) for x in asked] for name, asked in written.items()}
    except (AttributeError, TypeError, ValueError, OverflowError):
        found = {"": [math.nan]}
    if not all(math.isfinite(x) for asked in found.values() for x in asked):
        raise DataError("a question about medians should hold lists of finite numbers.")
    return found


def question_id(thresholds: Mapping[str, list[float]]) -> str:
    """Name a question by what it asks, so that an answer to another one is noticed."""
    return hashlib.sha256(json.dumps(thresholds, sort_keys=True).encode()).hexdigest()[:16]


def count_at_most(values: Floats, thresholds: list[float]) -> list[int]:
    """Answer for one input: how many known values are at most each threshold."""
    known = np.sort(values[~np.isnan(values)])
    counts: list[int] = np.searchsorted(known, thresholds, side="right").tolist()
    return counts
