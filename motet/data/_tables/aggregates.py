"""Aggregates of sites: everything that statistics over sites need, without a single row.

A site computes its own with `aggregate`, and may send them; `join` puts those of several sites next
to each other. A pooled table is aggregated by the same code, per site, so that a deployment and a
simulation end with the same numbers, bit by bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motet.data._schema import Column, Schema
from motet.data._tables.encode import Block, Noticed, counted, in_threads, read_block
from motet.errors import DataError

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
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

    def to_dict(self) -> dict[str, Any]:
        """Return what a site sends, as JSON values; a range is null where there is no value."""
        ranges = {name: _finite(getattr(self, name)) for name in ("low", "high")}
        plain = {
            name: getattr(self, name).tolist()
            for name in ("rows", "missing", "known", "mean", "spread")
        }
        return {"sites": list(self.sites), **plain, **ranges}

    @classmethod
    def from_dict(cls, sent: Mapping[str, Any], schema: Schema) -> Aggregates:
        """Read what sites sent, and refuse what does not fit the schema."""
        try:
            made = cls(
                sites=tuple(str(site) for site in sent["sites"]),
                rows=np.asarray(sent["rows"], np.int64),
                missing=np.asarray(sent["missing"], np.int64),
                known=np.asarray(sent["known"], np.int64),
                mean=np.asarray(sent["mean"], np.float64),
                spread=np.asarray(sent["spread"], np.float64),
                low=_infinite(sent["low"], math.inf),
                high=_infinite(sent["high"], -math.inf),
            )
        except (KeyError, TypeError, ValueError, OverflowError):
            raise DataError(
                "these are not the aggregates of a site; expected a JSON object of numbers."
            ) from None
        made.check(schema)
        return made

    def check(self, schema: Schema) -> None:
        """Refuse aggregates that cannot be those of rows of this schema."""
        sites, columns, inputs = len(self.sites), len(schema.columns), len(base_names(schema))
        wanted = {
            "rows": (sites,),
            "missing": (sites, columns),
            **dict.fromkeys(("known", "mean", "spread", "low", "high"), (sites, inputs)),
        }
        for name, shape in wanted.items():
            values = getattr(self, name)
            if values.shape != shape or np.isnan(values.astype(np.float64)).any():
                raise DataError(
                    f"the aggregates of {', '.join(self.sites[:3]) or 'a site'} do not fit the "
                    f"schema: {name} has shape {values.shape}, expected {shape} of numbers."
                )
        whole = self.rows[:, None]
        possible = (
            (self.rows >= 0).all()
            and ((self.missing >= 0) & (self.missing <= whole)).all()
            and ((self.known >= 0) & (self.known <= whole)).all()
            and (self.spread >= 0).all()
            and np.isfinite(self.mean).all()
            and np.isfinite(self.spread).all()
        )
        if not possible:
            raise DataError(
                f"the aggregates of {', '.join(self.sites[:3])} are impossible: counts must lie "
                "between 0 and the number of rows, and spreads must not be negative."
            )


def _finite(values: Floats) -> list[list[float | None]]:
    return [[x if math.isfinite(x) else None for x in row] for row in values.tolist()]


def _infinite(rows: Sequence[Sequence[float | None]], instead: float) -> Floats:
    return np.asarray([[instead if x is None else x for x in row] for row in rows], np.float64)


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
) -> Aggregates:
    """Aggregate training rows by site.

    Args:
        schema: Columns without statistics.
        table: A `pyarrow.Table`.
        site: Number of the site of each row that is used; None: all are of the only one.
        sites: Names of the sites.
        rows: The training rows; None: all of the table.
        row_name: Names a row of the table in messages.
    """
    used = len(table) if rows is None else len(rows)
    groups = Grouped(np.zeros(used, np.int64) if site is None else site, len(sites))
    noticed = Noticed(row_name, [], counted)

    def of_column(column: Column) -> tuple[Counts, list[Moments]]:
        block = block_of(schema, table, column, rows, noticed)
        moments = [groups.moments(np.asarray(values, np.float64)) for values in block.values.T]
        return groups.count(block.holes), moments

    found = in_threads(of_column, schema.columns, rows=len(table))
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
        self._order = None if is_sorted else np.argsort(site, kind="stable")
        self._starts = np.concatenate([[0], np.cumsum(self.rows)[:-1]])

    def count(self, holes: NDArray[np.bool_]) -> Counts:
        """Count the rows of a mask."""
        if not holes.any():
            return np.zeros(self.sites, np.int64)
        return np.bincount(self.site[holes], minlength=self.sites)

    def moments(self, values: Floats) -> Moments:
        """Return count, mean, spread, minimum and maximum of the values that are not NaN."""
        holes = np.isnan(values)
        any_hole = bool(holes.any())
        known = self.rows - self.count(holes)
        shares = np.maximum(known, 1)
        filled = np.where(holes, 0.0, values) if any_hole else values
        mean = np.bincount(self.site, weights=filled, minlength=self.sites) / shares
        off = filled - mean[self.site]
        if any_hole:
            off[holes] = 0.0
        spread: Floats = np.bincount(self.site, weights=off * off, minlength=self.sites).astype(
            float
        )
        low = self._extreme(np.minimum, np.where(holes, np.inf, values) if any_hole else values)
        high = self._extreme(np.maximum, np.where(holes, -np.inf, values) if any_hole else values)
        empty = known == 0
        low[empty], high[empty] = np.inf, -np.inf
        return known.astype(np.int64), mean, spread, low, high

    def _extreme(self, which: np.ufunc, values: Floats) -> Floats:
        if not len(values):
            return np.zeros(self.sites)
        starts = np.minimum(self._starts, len(values) - 1)  # sites without rows, at the end
        ordered = values if self._order is None else values[self._order]
        return np.asarray(which.reduceat(ordered, starts))


def join(parts: Sequence[Aggregates]) -> Aggregates:
    """Put the aggregates of several sites next to each other, in the order of their names."""
    listed = [(site, part, place) for part in parts for place, site in enumerate(part.sites)]
    listed.sort(key=lambda item: item[0])
    names = [site for site, _, _ in listed]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f'site "{twice}" sent its aggregates twice.')

    def stacked(name: str) -> Any:
        return np.stack([getattr(part, name)[place] for _, part, place in listed])

    fields = ("rows", "missing", "known", "mean", "spread", "low", "high")
    return Aggregates(tuple(names), *(stacked(name) for name in fields))


def block_of(
    schema: Schema, table: Any, column: Column, rows: Counts | None, noticed: Noticed
) -> Block:
    """Read one column of some rows; numbers are taken, which costs less than taking cells."""
    block = read_block(schema, column, table[column.name], noticed)
    return block if rows is None else Block(block.values[rows], block.holes[rows])


def medians_of(schema: Schema, table: Any, rows: Counts | None = None) -> Floats:
    """Compute the median of each input's known values, [inputs]; 0 for categories, NaN if none."""
    noticed, found = Noticed(counted, [], counted), []
    for column in schema.columns:
        block = block_of(schema, table, column, rows, noticed)
        for values in np.asarray(block.values, np.float64).T:
            known = values[~np.isnan(values)]
            middle = float(np.median(known)) if len(known) else math.nan
            found.append(0.0 if column.kind == "categorical" else middle)
    return np.asarray(found)
