"""Aggregates of sites: everything that statistics over sites need, without a single row.

A site computes its own with `aggregate`, and may send them (`sending.py`). A pooled table is
aggregated by the same code, per site, so that a deployment and a simulation end with the same
numbers, bit by bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from motet.data._columns import Column
from motet.data._partition.counts import stable_order
from motet.data._schema import Schema
from motet.data._tables.blocks import Block, Noticed, counted, read_block
from motet.data._tables.encode import in_threads
from motet.data._tables.reading import MANY_ROWS, Reading

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
T = TypeVar("T")
Moments = tuple[Counts, Floats, Floats, Floats, Floats]


@dataclass(frozen=True, eq=False)
class Aggregates:
    """Counts and moments of each site's training rows; inputs are those without indicators.

    Attributes:
        sites: Names.
        rows: Training rows, [sites].
        missing: Missing values, [sites, columns].
        known: Values that are there, [sites, inputs].
        mean: Their mean, [sites, inputs]; 0 where there is none.
        spread: Sum of the squared distances from that mean, [sites, inputs].
        low: Smallest value, [sites, inputs]; infinity where there is none.
        high: Largest value, [sites, inputs].
    """

    sites: tuple[str, ...]
    rows: Counts
    missing: Counts
    known: Counts
    mean: Floats
    spread: Floats
    low: Floats
    high: Floats


def base_names(schema: Schema) -> tuple[str, ...]:
    """Name the inputs without indicators."""
    return tuple(
        name
        for column in schema.columns
        for name in column.features[: len(column.features) - column.indicator]
    )


def aggregate(
    schema: Schema,
    table: Any,
    site: Counts | None = None,
    sites: Sequence[str] = ("",),
    *,
    rows: Counts | None = None,
    row_name: Callable[[int], str] = counted,
    reading: Reading | None = None,
) -> Aggregates:
    """Aggregate training rows by site.

    Args:
        schema: Columns without statistics.
        table: A `pyarrow.Table`.
        site: Number of the site of each row that is used; None: all are of the only one.
        sites: Names of the sites.
        rows: The training rows; None: all of the table.
        row_name: Names a row of the table in messages.
        reading: Columns that are read already, to which the others are added; None keeps none.
    """
    used = np.arange(len(table)) if rows is None else rows
    groups = Grouped(np.zeros(len(used), np.int64) if site is None else site, len(sites), used)
    noticed = Noticed(row_name, [], counted)

    def of_column(column: Column) -> tuple[Counts, list[Moments]]:
        block = block_of(schema, table, column, None, noticed, reading)
        if column.kind == "categorical":
            width = len(column.features) - column.indicator
            return groups.count(block.holes), groups.shares(block.values, width)
        moments = [groups.moments(np.asarray(values, np.float64)) for values in block.values.T]
        return groups.rows - moments[0][0], moments  # all parts of a date are missing together

    found = (in_threads if len(table) >= MANY_ROWS else _one_by_one)(of_column, schema.columns)
    missing = [count for count, _ in found]
    moments = [values for _, each in found for values in each]
    known, mean, spread, low, high = (np.stack(part, axis=1) for part in zip(*moments, strict=True))
    return Aggregates(
        tuple(sites), groups.rows, np.stack(missing, 1), known, mean, spread, low, high
    )


class Grouped:
    """Sums over the rows of each site, always in the order of its rows.

    Each site's rows are added apart from those of others, so a site that sums its own rows alone
    gets the same result, bit by bit, as a table of all sites.

    Args:
        site: Number of the site of each row that is used.
        sites: How many there are.
        used: The rows that are used, of those of the table.
    """

    def __init__(self, site: Counts, sites: int, used: NDArray[Any]) -> None:
        self.sites = sites
        self.rows: Counts = np.bincount(site, minlength=sites)
        is_sorted = bool((site[1:] >= site[:-1]).all())
        order = slice(None) if is_sorted else stable_order(site, sites)
        self._site, self._used = site[order], used[order].astype(np.intp)  # once for all columns
        self._there = np.flatnonzero(self.rows)
        self._starts = (np.cumsum(self.rows) - self.rows)[self._there]

    def count(self, mask: NDArray[np.bool_]) -> Counts:
        """Count the rows of a mask over the table."""
        if not mask.any():
            return np.zeros(self.sites, np.int64)
        return np.bincount(self._site[mask.take(self._used)], minlength=self.sites)

    def moments(self, column: Floats) -> Moments:
        """Return count, mean, spread, minimum and maximum of the values that are not NaN."""
        values = column.take(self._used)  # a copy, which is overwritten below
        holes = np.flatnonzero(np.isnan(values))
        known = self.rows - np.bincount(self._site[holes], minlength=self.sites)
        low, high = self._of_each(np.fmin, values), self._of_each(np.fmax, values)
        low[known == 0], high[known == 0] = np.inf, -np.inf
        values[holes] = 0.0
        mean = self._of_each(np.add, values) / np.maximum(known, 1)
        values -= np.repeat(mean, self.rows)
        values[holes] = 0.0
        values *= values
        return known, mean, self._of_each(np.add, values), low, high

    def shares(self, column: NDArray[Any], width: int) -> list[Moments]:
        """Return the moments of inputs of which at most one is 1 in each row, the others 0."""
        # Number -1, no input, is counted before the first one.
        places = self._site * (width + 1) + (column.take(self._used) + 1)
        counts = np.bincount(places, minlength=self.sites * (width + 1))
        ones = counts.reshape(self.sites, width + 1)[:, 1:]
        return [share_moments(ones[:, place], self.rows) for place in range(width)]

    def _of_each(self, function: np.ufunc, values: Floats) -> Floats:
        """Reduce the values of each site; 0 if it has no rows."""
        found = np.zeros(self.sites)
        if len(values):
            found[self._there] = function.reduceat(values, self._starts)
        return found


def share_moments(ones: Counts, rows: Counts) -> Moments:
    """Compute the moments of a category's input from counts alone, so that counts are sent."""
    mean = ones / np.maximum(rows, 1)
    spread = ones * (1 - mean) ** 2 + (rows - ones) * mean**2
    low = np.where(rows == 0, np.inf, np.where(ones == rows, 1.0, 0.0))
    high = np.where(rows == 0, -np.inf, np.where(ones > 0, 1.0, 0.0))
    return rows.astype(np.int64), mean, spread, low, high


def block_of(
    schema: Schema,
    table: Any,
    column: Column,
    rows: Counts | None,
    noticed: Noticed,
    reading: Reading | None = None,
) -> Block:
    """Read one column of some rows; numbers are taken, which costs less than taking cells.

    Numbers are taken soon after they are read, while the processor's cache still holds them.
    """
    block = None if reading is None else reading.get(column.name)
    if block is None:
        block = read_block(schema, column, table[column.name], noticed)
        if reading is not None:
            reading[column.name] = block
    return block if rows is None else block.rows(rows)


def _one_by_one(work: Callable[[Any], T], items: Sequence[Any]) -> list[T]:
    return [work(item) for item in items]


def medians_of(
    schema: Schema, table: Any, rows: Counts | None = None, reading: Reading | None = None
) -> Floats:
    """Compute the median of each input's known values, [inputs]; 0 for categories, NaN if none."""
    noticed, found = Noticed(counted, [], counted), []
    for column in schema.columns:
        if column.kind == "categorical":
            found += [0.0] * (len(column.features) - column.indicator)
            continue
        block = block_of(schema, table, column, rows, noticed, reading)
        for values in np.asarray(block.values, np.float64).T:
            known = values[~np.isnan(values)]
            found.append(float(np.median(known)) if len(known) else math.nan)
    return np.asarray(found)
