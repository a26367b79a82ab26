"""Judged recipes as rows of text: for the terminal, and for the page of reproductions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from motet._core.text import in_points, plural
from motet._recipes.judging import Interval, Judge, JudgedCell, Verdict
from motet._recipes.recipe import Recipe
from motet._recipes.records import StoredResults

HEADER = ("cell", "published", "ours", "difference", "verdict")


@dataclass(frozen=True, kw_only=True)
class JudgedRecipe:
    """The results of a recipe, judged and ready to be written."""

    recipe: Recipe
    results: StoredResults

    @property
    def judge(self) -> Judge:
        """The judge of these results."""
        return Judge(recipe=self.recipe, scale=self.results.scale, runs=self.results.runs)

    @property
    def metric(self) -> str:
        """The metric of the cells; "accuracy" before there is a result."""
        runs = self.results.runs.values()
        return next((t.metric for run in runs for t in run.scores.values()), "accuracy")

    @property
    def seconds(self) -> float:
        """Seconds of training, of all runs."""
        return sum(run.seconds for run in self.results.runs.values())

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Write a row per cell and per claim of this scale, under `HEADER`."""
        for judged in self.judge.cells():
            yield self._cell_row(judged)
        for claim in self.judge.claims():
            gap = self._interval(claim.verdict.interval)
            yield claim.claim.text, "claimed", "", gap, str(claim.verdict)

    def left_out(self) -> str:
        """Say how many cells of the recipe this scale leaves out; nothing if none."""
        left = len(self.recipe.cells) - len(self.recipe.cells_at(self.results.scale))
        return f"{plural(left, 'cell')} of the table not run at this scale." if left else ""

    def _cell_row(self, judged: JudgedCell) -> tuple[str, ...]:
        cell = judged.cell
        published = "" if cell.published is None else self._value(cell.published, cell.spread)
        ours = self._value(judged.mean, judged.spread) if judged.values else ""
        gap = self._interval(judged.verdict.interval)
        if gap and judged.verdict.direction is not None:
            gap = f"{gap} to {cell.reference}"
        return cell.name, published, ours, gap, str(judged.verdict)

    def _value(self, value: float, spread: float | None) -> str:
        after = "" if spread is None else f" ± {self._number(spread)}"
        return f"{self._number(value)}{after}"

    def _interval(self, found: Interval | None) -> str:
        if found is None:
            return ""
        centre, low, high = (self._number(part, signed=True) for part in found)
        return f"{centre} [{low}, {high}]" if math.isfinite(found.low) else f"{centre} [one run]"

    def _number(self, value: float, *, signed: bool = False) -> str:
        shown, digits = (100 * value, 1) if in_points(self.metric) else (value, 3)
        return f"{shown:+.{digits}f}" if signed else f"{shown:.{digits}f}"


def counted(judged: JudgedRecipe) -> dict[str, int]:
    """Count the verdicts on cells and claims by their text, without what was not run."""
    judge = judged.judge
    verdicts: list[Verdict] = [found.verdict for found in judge.cells()]
    verdicts += [found.verdict for found in judge.claims()]
    words = [str(verdict) for verdict in verdicts if is_decided(verdict)]
    return {word: words.count(word) for word in sorted(set(words))}


def is_decided(verdict: Verdict) -> bool:
    """Tell whether something was compared at all."""
    return verdict.word != "not run" and verdict.direction != "not compared"


def about_scale(recipe: Recipe, scale: str) -> str:
    """Say what a scale is, in one sentence."""
    chosen = recipe.scale(scale)
    seeds = plural(chosen.seeds, "seed")
    if chosen.same_setting:
        return f"{scale}: the published setting, {seeds}"
    return f"{scale}: {chosen.differs or 'smaller than the published setting'}; {seeds}"
