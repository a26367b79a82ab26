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
        reading: Columns that are read already.
    """
    used = len(table) if rows is None else len(rows)
    groups = Grouped(np.zeros(used, np.int64) if site is None else site, len(sites))
    noticed = Noticed(row_name, [], counted)
    chosen = None if rows is None else rows.astype(np.intp)  # once, not for each column

    def of_column(column: Column) -> tuple[Counts, list[Moments]]:
        block = block_of(schema, table, column, chosen, noticed, reading)
        if column.kind == "categorical":
            width = len(column.features) - column.indicator
            return groups.count(block.holes), groups.shares(block.values, width)
        moments = [groups.moments(np.asarray(values, np.float64)) for values in block.values.T]
        return groups.count(block.holes), moments

    found = (in_threads if len(table) >= MANY_ROWS else _one_by_one)(of_column, schema.columns)
    missing = [count for count, _ in found]
    moments = [values for _, each in found for values in each]
    known, mean, spread, low, high = (np.stack(part, axis=1) for part in zip(*moments, strict=True))
    return Aggregates(
        tuple(sites), groups.rows, np.stack(missing, 1), known, mean, spread, low, high
    )


class Grouped:
    """Sums over the rows of each site, always in the order of its rows.

    `np.bincount` adds one row after another, so a site that sums its own rows alone gets the same
    result, bit by bit, as a table of all sites.
    """

    def __init__(self, site: Counts, sites: int) -> None:
        self.site, self.sites = site, sites
        self.rows: Counts = np.bincount(site, minlength=sites)
        is_sorted = bool((site[1:] >= site[:-1]).all())
        self._order = None if is_sorted else stable_order(site, sites)
        self._starts = np.concatenate([[0], np.cumsum(self.rows)[:-1]])

    def count(self, holes: NDArray[np.bool_]) -> Counts:
        """Count the rows of a mask."""
        if not holes.any():
            return np.zeros(self.sites, np.int64)
        return np.bincount(self.site[holes], minlength=self.sites)

    def moments(self, values: Floats) -> Moments:
        """Return count, mean, spread, minimum and maximum of the values that are not NaN."""
        holes = np.flatnonzero(np.isnan(values))
        known = self.rows - np.bincount(self.site[holes], minlength=self.sites)
        shares = np.maximum(known, 1)
        filled = _with(values, holes, 0.0)
        mean = np.bincount(self.site, weights=filled, minlength=self.sites) / shares
        off = mean.take(self.site)
        np.subtract(filled, off, out=off)
        off[holes] = 0.0
        off *= off
        spread: Floats = np.bincount(self.site, weights=off, minlength=self.sites).astype(float)
        low, high = self._extremes(values)
        empty = known == 0
        low[empty], high[empty] = np.inf, -np.inf
        return known.astype(np.int64), mean, spread, low, high

    def shares(self, codes: NDArray[Any], width: int) -> list[Moments]:
        """Return the moments of inputs of which at most one is 1 in each row, the others 0."""
        # Number -1, no input, is counted before the first one.
        places = self.site * (width + 1) + (codes + 1)
        counts = np.bincount(places, minlength=self.sites * (width + 1))
        ones = counts.reshape(self.sites, width + 1)[:, 1:]
        return [share_moments(ones[:, place], self.rows) for place in range(width)]

    def _extremes(self, values: Floats) -> tuple[Floats, Floats]:
        """Return the least and the largest value of each site that is not NaN, if it has one."""
        if not len(values):
            return np.zeros(self.sites), np.zeros(self.sites)
        starts = np.minimum(self._starts, len(values) - 1)  # sites without rows, at the end
        ordered = values if self._order is None else values.take(self._order)
        return np.fmin.reduceat(ordered, starts), np.fmax.reduceat(ordered, starts)


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
    """Read one column of some rows; numbers are taken, which costs less than taking cells."""
    if reading and column.name in reading:
        block = reading[column.name].result()
    else:
        block = read_block(schema, column, table[column.name], noticed)
    return block if rows is None else block.rows(rows)


def _one_by_one(work: Callable[[Any], T], items: Sequence[Any]) -> list[T]:
    return [work(item) for item in items]


def _with(values: Floats, places: NDArray[np.intp], value: float) -> Floats:
    """Replace a few values, in a copy; without places the array stays as it is."""
    if not len(places):
        return values
    replaced = values.copy()
    replaced[places] = value
    return replaced


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
