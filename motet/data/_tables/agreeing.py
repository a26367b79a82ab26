"""Statistics of a federation from what its sites sent: the schema that pooling would give."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from motet.data._columns import Column
from motet.data._schema import Schema
from motet.data._tables.aggregates import Aggregates, share_moments
from motet.data._tables.asking import MOST_DECIMALS, Bracket, Question
from motet.data._tables.categories import Categories, choose_categories
from motet.data._tables.cells import Cells, exact_spelling, same_spelling
from motet.data._tables.options import Filling, Standardize
from motet.data._tables.sending import SiteStatistics, numeric_names
from motet.data._tables.statistics import Medians, finish
from motet.errors import DataError


@dataclass(frozen=True)
class Agreeing:
    """Statistics of sites, on the way to a schema.

    Attributes:
        draft: Columns without statistics.
        sent: Of each site, in the order of names.
        filling: How missing values are filled.
        standardize: Whether and by whose statistics inputs are scaled.
        rare: Categories with fewer rows share one input.
        complete: Whether every site has sent its own; otherwise the categories of the draft stay,
            since the others may have them.
    """

    draft: Schema
    sent: tuple[SiteStatistics, ...]
    filling: Filling
    standardize: Standardize
    rare: float = 0
    complete: bool = True

    @property
    def needs_medians(self) -> bool:
        """Whether sites must be asked questions."""
        return self.filling.by == "median"

    def first_question(self) -> Question:
        """Make the question to start with: the median lies in the range of all values."""
        brackets = {}
        for name in numeric_names(self.draft):
            own = [one.inputs[name] for one in self.sent if one.inputs[name].known]
            if not own:
                continue  # `finish` refuses a column without values
            decimals = [MOST_DECIMALS + 1 if o.decimals is None else o.decimals for o in own]
            grid = max(decimals)
            brackets[name] = Bracket.of(
                known=sum(o.known for o in own),
                low=min(o.low for o in own if o.low is not None),
                high=max(o.high for o in own if o.high is not None),
                decimals=grid if grid <= MOST_DECIMALS else None,
            )
        return Question(brackets)

    def next_question(self, question: Question) -> Question:
        """Use the answers of the sites."""
        at_most = {}
        for name, bracket in question.brackets.items():
            own = [one.inputs[name] for one in self.sent]
            if sum(o.known for o in own) != bracket.known:
                raise DataError(
                    f'input "{name}" had {bracket.known} values when the question was asked, and '
                    f"has {sum(o.known for o in own)} now: the rows or the sites changed. Start "
                    "again with statistics without an answer: delete questions.json at each site."
                )
            if any(len(o.at_most) != len(bracket.asked) for o in own):
                raise DataError(f'a site did not answer what was asked about input "{name}".')
            at_most[name] = [sum(counts) for counts in zip(*(o.at_most for o in own), strict=True)]
        return question.narrowed(at_most)

    def schema(self, medians: Mapping[str, float] | None) -> Schema:
        """Complete the schema; `medians` are needed if missing values are filled with them."""
        draft = replace(self.draft, columns=tuple(map(self._with_categories, self.draft.columns)))
        names, joined = _names(draft), self._joined(draft)
        given = None
        if medians is not None:
            overall = np.asarray([medians.get(name, math.nan) for name in names])
            given = Medians(overall, self._own_medians(names) if self.filling.own else None)
        found = finish(draft, joined, self.filling, self.standardize, given)
        return replace(found, site_fills={}, site_scaling={})  # those stay at the sites

    def _own_medians(self, names: Sequence[str]) -> Any:
        own = [
            [one.inputs[n].median if n in one.inputs else 0.0 for n in names] for one in self.sent
        ]
        return np.asarray(own, np.float64)  # None becomes NaN

    def _with_categories(self, column: Column) -> Column:
        if column.kind != "categorical":
            return column
        counts: dict[str, int] = dict.fromkeys(() if self.complete else column.categories, 0)
        for one in self.sent:
            for text, (_, rows) in one.categories[column.name].items():
                counts[text] = counts.get(text, 0) + rows
        codes = np.repeat(np.arange(len(counts), dtype=np.int32), list(counts.values()))
        found = choose_categories(
            column.name,
            Cells(codes, tuple(counts)),
            sum(one.table_rows for one in self.sent),
            Categories(rare=self.rare, ignore_case=self.draft.merge_spellings),
        )
        kept, other = found.kept, found.rare > 0
        if not self.complete:
            other = other or column.other
        return replace(column, categories=tuple(kept), other=other)

    def _joined(self, draft: Schema) -> Aggregates:
        """Put the moments of all sites into the order of the draft's inputs."""
        rows = np.asarray([one.rows for one in self.sent], np.int64)
        parts: list[Any] = []
        for column in draft.columns:
            if column.kind == "categorical":
                parts += [share_moments(ones, rows) for ones in self._ones(column)]
            else:
                parts += [self._moments(name) for name in column.features]
        known, mean, spread, low, high = (np.stack(p, axis=1) for p in zip(*parts, strict=True))
        missing = np.asarray([[o.missing[c.name] for c in draft.columns] for o in self.sent])
        sites = tuple(one.site for one in self.sent)
        return Aggregates(sites, rows, missing, known, mean, spread, low, high)

    def _moments(self, name: str) -> tuple[Any, ...]:
        own = [one.inputs[name] for one in self.sent]
        return (
            np.asarray([o.known for o in own], np.int64),
            np.asarray([o.mean for o in own]),
            np.asarray([o.spread for o in own]),
            np.asarray([math.inf if o.low is None else o.low for o in own]),
            np.asarray([-math.inf if o.high is None else o.high for o in own]),
        )

    def _ones(self, column: Column) -> Any:
        """Count the training rows of each category's input at each site, [inputs, sites]."""
        key = same_spelling if self.draft.merge_spellings else exact_spelling
        places = {key(category): n for n, category in enumerate(column.categories)}
        ones = np.zeros((len(column.features), len(self.sent)), np.int64)
        for number, one in enumerate(self.sent):
            for text, (rows, _) in one.categories[column.name].items():
                place = places.get(key(text), len(places) if column.other else None)
                if place is not None:
                    ones[place, number] += rows
        return ones


def _names(draft: Schema) -> list[str]:
    return [name for column in draft.columns for name in column.features]


def in_order(sent: Sequence[SiteStatistics]) -> tuple[SiteStatistics, ...]:
    """Sort by site, and refuse a site that comes twice."""
    ordered = tuple(sorted(sent, key=lambda one: one.site))
    for one, other in pairwise(ordered):
        if one.site == other.site:
            raise DataError(f'site "{one.site}" sent its statistics twice.')
    return ordered
