"""Verdicts: our numbers beside the published ones, by the rule of the recipe.

Where the setting is the paper's, the interval of (ours - published) decides:
    reproduced           it lies within the margin;
    refuted              it lies outside of the margin altogether;
    not distinguishable  it reaches across the edge of the margin.
A published number without a spread counts as one more run with our spread. A claim is about a sum
of cells that the paper says is above 0: reproduced if the interval of ours is above 0, refuted if
it is below.

Where the setting is smaller, numbers are not compared. "direction only" says whether a cell lies on
the same side of its reference cell as in the paper.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from motet._recipes.recipe import Cell, Claim, Recipe
from motet._recipes.records import PointScores, Result

Word = Literal["reproduced", "refuted", "not distinguishable", "direction only", "not run"]
Direction = Literal["as published", "opposite", "unclear", "not compared"]
RESAMPLES = 2000
Runs = Mapping[tuple[str, int], Result]


class Interval(NamedTuple):
    """An estimate and its interval."""

    centre: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What is to be said about a cell or a claim.

    Attributes:
        interval: Of ours minus the published number; of a direction: of ours minus the reference.
        direction: Where only the direction is judged, or it is a claim.
    """

    word: Word
    direction: Direction | None = None
    interval: Interval | None = None

    def __str__(self) -> str:
        return self.word if self.direction is None else f"{self.word}: {self.direction}"


@dataclass(frozen=True, kw_only=True)
class JudgedCell:
    """A cell, our values of it by seed, and the verdict."""

    cell: Cell
    values: tuple[float, ...]
    verdict: Verdict

    @property
    def mean(self) -> float:
        """Mean over seeds."""
        return fmean(self.values) if self.values else math.nan

    @property
    def spread(self) -> float | None:
        """Standard deviation over seeds; None with fewer than two."""
        return stdev(self.values) if len(self.values) > 1 else None


@dataclass(frozen=True, kw_only=True)
class JudgedClaim:
    """A claim and the verdict."""

    claim: Claim
    verdict: Verdict


@dataclass(frozen=True, kw_only=True)
class Judge:
    """Judges the cells of one recipe at one scale."""

    recipe: Recipe
    scale: str
    runs: Runs

    def cells(self) -> list[JudgedCell]:
        """Judge every cell of this scale."""
        return [
            JudgedCell(cell=cell, values=tuple(self._values(cell)), verdict=self._verdict(cell))
            for cell in self.recipe.cells_at(self.scale)
        ]

    def claims(self) -> list[JudgedClaim]:
        """Judge every claim of this scale."""
        return [
            JudgedClaim(claim=claim, verdict=self._claim_verdict(claim))
            for claim in self.recipe.claims_at(self.scale)
        ]

    def _verdict(self, cell: Cell) -> Verdict:
        ours = list(self._values(cell))
        if len(ours) < len(self.recipe.seeds(self.scale)):
            return Verdict(word="not run")
        if self.recipe.scale(self.scale).same_setting and cell.published is not None:
            interval = against_published(ours, cell, self.recipe)
            return Verdict(word=equivalence(interval, self.recipe.rule.margin), interval=interval)
        return self._direction(cell)

    def _direction(self, cell: Cell) -> Verdict:
        other = next((c for c in self.recipe.cells if c.name == cell.reference), None)
        if other is None or cell.published is None or other.published is None:
            return Verdict(word="direction only", direction="not compared")
        interval = self._contrast({cell.name: 1.0, other.name: -1.0})
        if interval is None:
            return Verdict(word="direction only", direction="not compared")
        margin = self.recipe.rule.margin
        direction = compared(cell.published - other.published, interval, margin)
        return Verdict(word="direction only", direction=direction, interval=interval)

    def _claim_verdict(self, claim: Claim) -> Verdict:
        interval = self._contrast(claim.contrast)
        if interval is None:
            return Verdict(word="not run")
        if not self.recipe.scale(self.scale).same_setting:
            side = compared(math.inf, interval, 0.0)
            return Verdict(word="direction only", direction=side, interval=interval)
        word: Word = "not distinguishable"
        if interval.low > 0 or interval.high < 0:
            word = "reproduced" if interval.low > 0 else "refuted"
        return Verdict(word=word, interval=interval)

    def _values(self, cell: Cell) -> Sequence[float]:
        found = (self._scores(cell, seed) for seed in self.recipe.seeds(self.scale))
        return [scores.statistic(cell.statistic) for scores in found if scores is not None]

    def _scores(self, cell: Cell, seed: int) -> PointScores | None:
        result = self.runs.get((cell.training, seed))
        return None if result is None else result.at(cell.point)

    def _contrast(self, weights: Mapping[str, float]) -> Interval | None:
        """Return the interval of a weighted sum of cells; None before all of them are run."""
        cells = {cell.name: cell for cell in self.recipe.cells_at(self.scale)}
        if not set(weights) <= set(cells):
            return None
        parts = [
            [(w, cells[n], self._scores(cells[n], seed)) for n, w in weights.items()]
            for seed in self.recipe.seeds(self.scale)
        ]
        complete = [
            [(w, cell, scores) for w, cell, scores in part if scores is not None] for part in parts
        ]
        if any(len(part) < len(weights) for part in complete):
            return None
        confidence = self.recipe.rule.confidence
        if self.recipe.scale(self.scale).unit == "seeds":
            return over_seeds([_sum(part) for part in complete], confidence)
        return over_clients(complete, confidence)


Part = Sequence[tuple[float, Cell, PointScores]]


def _sum(part: Part, chosen: NDArray[np.int64] | None = None) -> float:
    return math.fsum(w * scores.statistic(cell.statistic, chosen) for w, cell, scores in part)


def over_seeds(values: Sequence[float], confidence: float) -> Interval:
    """Return the t interval of a mean over seeds; without end for a single seed.

    >>> over_seeds([1.0, 1.0, 1.0], 0.95)
    Interval(centre=1.0, low=1.0, high=1.0)
    """
    from scipy import stats

    centre, number = fmean(values), len(values)
    if number < 2:
        return Interval(centre, -math.inf, math.inf)
    reach = stats.t.ppf((1 + confidence) / 2, number - 1) * stdev(values) / math.sqrt(number)
    return Interval(centre, float(centre - reach), float(centre + reach))


def over_clients(parts: Sequence[Part], confidence: float) -> Interval:
    """Return the interval of a mean over seeds if other clients like these had been there.

    Clients are resampled within each seed, the same for all cells.
    """
    rng = np.random.default_rng(0)
    sizes = [min(len(scores.clients) for _, _, scores in part) for part in parts]
    resampled = [
        fmean(
            _sum(part, rng.integers(size, size=size))
            for part, size in zip(parts, sizes, strict=True)
        )
        for _ in range(RESAMPLES)
    ]
    tail = (1 - confidence) / 2
    low, high = np.quantile(resampled, [tail, 1 - tail])
    return Interval(fmean(_sum(part) for part in parts), float(low), float(high))


def against_published(ours: Sequence[float], cell: Cell, recipe: Recipe) -> Interval:
    """Return the interval of (ours - published), by Welch's t where the paper has a spread."""
    from scipy import stats

    assert cell.published is not None
    gap, number = fmean(ours) - cell.published, len(ours)
    if number < 2:
        return Interval(gap, -math.inf, math.inf)
    own, runs = stdev(ours) ** 2, recipe.rule.published_runs
    mine = own / number
    theirs = own if cell.spread is None else cell.spread**2 / runs
    freedom: float = number - 1
    if cell.spread is not None and runs > 1 and mine + theirs > 0:
        freedom = (mine + theirs) ** 2 / (mine**2 / (number - 1) + theirs**2 / (runs - 1))
    reach = float(stats.t.ppf((1 + recipe.rule.confidence) / 2, freedom))
    reach *= math.sqrt(mine + theirs)
    return Interval(gap, gap - reach, gap + reach)


def equivalence(interval: Interval, margin: float) -> Word:
    """Say whether a difference is within the margin.

    >>> equivalence(Interval(0.0, -0.01, 0.01), 0.02), equivalence(Interval(0.1, 0.05, 0.2), 0.02)
    ('reproduced', 'refuted')
    >>> equivalence(Interval(0.01, -0.01, 0.03), 0.02)
    'not distinguishable'
    """
    if -margin <= interval.low and interval.high <= margin:
        return "reproduced"
    if interval.low > margin or interval.high < -margin:
        return "refuted"
    return "not distinguishable"


def compared(published: float, ours: Interval, margin: float) -> Direction:
    """Compare the direction of a published difference with ours.

    A published difference within the margin says that two cells are level; ours are if the whole
    interval is within the margin.
    """
    if abs(published) <= margin:
        if equivalence(ours, margin) == "reproduced":
            return "as published"
        return "opposite" if equivalence(ours, margin) == "refuted" else "unclear"
    if not (ours.low > 0 or ours.high < 0):
        return "unclear"
    return "as published" if (ours.low > 0) == (published > 0) else "opposite"
