"""Fills, scales and ranges of a schema, computed from the aggregates of sites.

Sums over sites are exact before they are rounded (`math.fsum`), so the order of sites is
irrelevant.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from motet.data._columns import Column, Scaling
from motet.data._schema import Schema
from motet.data._tables.aggregates import Aggregates, base_names
from motet.data._tables.fixes import fix
from motet.data._tables.options import Filling, Standardize
from motet.errors import DataError

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


class Medians(NamedTuple):
    """Medians of training rows; NaN where there is no value.

    Attributes:
        all: Over all sites, [inputs].
        own: Of each site, [sites, inputs]; None unless sites fill with their own.
    """

    all: Floats
    own: Floats | None = None


def finish(
    draft: Schema,
    aggregates: Aggregates,
    filling: Filling,
    standardize: Standardize,
    medians: Medians | None,
) -> Schema:
    """Complete a schema: ranges, indicators, fills and scales.

    Args:
        draft: The columns, without statistics.
        aggregates: Of all sites.
        filling: How missing values are filled.
        standardize: Whether and by whose statistics inputs are scaled.
        medians: Needed if missing values are filled with medians.
    """
    overall, own = _fills(draft, aggregates, filling, medians)
    columns = _with_ranges(draft, aggregates)
    flags = _flags(aggregates) if filling.indicators else [False] * len(columns)
    columns = tuple(
        replace(column, indicator=flag) for column, flag in zip(columns, flags, strict=True)
    )
    schema = replace(draft, columns=columns)
    if filling.by is not None:
        schema = replace(
            schema,
            fills=spread_out(schema, overall),
            site_fills={
                site: spread_out(schema, values)
                for site, values in zip(aggregates.sites, own, strict=True)
            }
            if filling.own
            else {},
        )
    return scaled(schema, aggregates, own, standardize)


def _with_ranges(draft: Schema, aggregates: Aggregates) -> tuple[Column, ...]:
    low, high = aggregates.low.min(axis=0), aggregates.high.max(axis=0)
    ranged, place = [], 0
    for column in draft.columns:
        is_number = column.kind == "number" and math.isfinite(low[place])
        ends = (float(low[place]), float(high[place])) if is_number else (None, None)
        ranged.append(replace(column, low=ends[0], high=ends[1]))
        place += len(column.features)
    return tuple(ranged)


def _flags(aggregates: Aggregates) -> list[bool]:
    return [bool(count) for count in aggregates.missing.sum(axis=0)]


def _fills(
    draft: Schema, aggregates: Aggregates, filling: Filling, medians: Medians | None
) -> tuple[Floats, Floats]:
    """Return the fill of each input, [inputs], and that of each site, [sites, inputs]."""
    names, known = base_names(draft), aggregates.known
    shape = aggregates.mean.shape
    one_hot = is_one_hot(draft)
    if filling.by is None or isinstance(filling.by, float):
        overall = np.full(shape[1], 0.0 if filling.by is None else filling.by)
        return np.where(one_hot, 0.0, overall), np.where(
            one_hot, 0.0, np.broadcast_to(overall, shape)
        )
    unknown = np.flatnonzero((known.sum(axis=0) == 0) & ~one_hot)
    if len(unknown):
        column = names[unknown[0]].rpartition(":")[0] or names[unknown[0]]
        raise DataError(
            f'column "{column}" has no value in any training row, so it has no {filling.by}. '
            f"Leave it out with {fix('drop', column)}."
        )
    if filling.by == "mean":
        overall, own = pooled_mean(aggregates), aggregates.mean
    else:
        assert medians is not None
        overall, own = medians.all, medians.all[None] if medians.own is None else medians.own
    own = np.broadcast_to(own, shape) if filling.own else np.broadcast_to(overall, shape)
    own = np.where(known == 0, overall, own)
    return np.where(one_hot, 0.0, overall), np.where(one_hot, 0.0, own)


def pooled_mean(aggregates: Aggregates) -> Floats:
    """Compute the mean over the known values of all sites, [inputs]."""
    sums = _exact_sums(aggregates.known * aggregates.mean)
    mean: Floats = sums / np.maximum(aggregates.known.sum(axis=0), 1)
    return mean


def _exact_sums(values: Floats) -> Floats:
    return np.asarray([math.fsum(column) for column in values.T.tolist()])


def scaled(schema: Schema, aggregates: Aggregates, own: Floats, standardize: Standardize) -> Schema:
    if standardize == "none":
        return schema
    count, mean, spread = _after_filling(aggregates, own)
    flags = [column.indicator for column in schema.columns]
    if any(flags):
        count, mean, spread = _with_indicators(schema, aggregates, count, mean, spread)
    total = np.maximum(count.sum(axis=0), 1)
    middle = _exact_sums(count * mean) / total
    wide = _exact_sums(spread + count * (mean - middle) ** 2) / total
    overall = _scaling(middle, wide)
    if standardize == "federation":
        return replace(schema, scaling=overall)
    variance = spread / np.maximum(count, 1)
    sites = {
        site: _scaling(mean[place], variance[place])
        for place, site in enumerate(aggregates.sites)
        if aggregates.rows[place]
    }
    return replace(schema, scaling=overall, site_scaling=sites)


def _after_filling(aggregates: Aggregates, own: Floats) -> tuple[Counts, Floats, Floats]:
    """Compute count, mean and spread of each site's inputs once its missing values are filled."""
    known, mean, spread = aggregates.known, aggregates.mean, aggregates.spread
    rows = np.broadcast_to(aggregates.rows[:, None], known.shape)
    holes = rows - known
    share = holes / np.maximum(rows, 1)
    filled_mean = np.where(known > 0, mean + (own - mean) * share, own)
    between = known * share * (own - mean) ** 2
    return rows, filled_mean, np.where(known > 0, spread + between, 0.0)


def _with_indicators(
    schema: Schema, aggregates: Aggregates, count: Counts, mean: Floats, spread: Floats
) -> tuple[Counts, Floats, Floats]:
    """Insert the moments of indicators, which are 0 or 1, at their places."""
    parts: list[tuple[Counts, Floats, Floats]] = []
    place = 0
    for number, column in enumerate(schema.columns):
        width = len(column.features) - column.indicator
        for feature in range(place, place + width):
            parts.append((count[:, feature], mean[:, feature], spread[:, feature]))
        place += width
        if column.indicator:
            rows, ones = aggregates.rows, aggregates.missing[:, number]
            share = ones / np.maximum(rows, 1)
            parts.append((rows, share, ones * (1 - share)))
    stacked = [np.stack(part, axis=1) for part in zip(*parts, strict=True)]
    return stacked[0], stacked[1], stacked[2]


def _scaling(mean: Floats, variance: Floats) -> Scaling:
    """Make a scaling; an input that never changes is only shifted."""
    deviation = np.sqrt(variance)
    # Rounding leaves a constant input with a tiny spread.
    deviation[deviation <= 1e-12 * np.maximum(np.abs(mean), 1e-300)] = 1.0
    return Scaling(tuple(mean.tolist()), tuple(deviation.tolist()))


def is_one_hot(draft: Schema) -> NDArray[np.bool_]:
    """Tell which inputs of a schema without indicators are categories."""
    return np.asarray([c.kind == "categorical" for c in draft.columns for _ in c.features])


def base_values(schema: Schema, values: tuple[float, ...] | None) -> Floats:
    """Leave the values of indicators out; zeros if there are none."""
    names = base_names(schema)
    if values is None:
        return np.zeros(len(names))
    by_name = dict(zip(schema.feature_names, values, strict=True))
    return np.asarray([by_name[name] for name in names])


def spread_out(schema: Schema, values: Floats) -> tuple[float, ...]:
    """Insert a 0 for every indicator, which is never missing."""
    spread, place = [], 0
    for column in schema.columns:
        width = len(column.features) - column.indicator
        spread += values[place : place + width].tolist() + [0.0] * column.indicator
        place += width
    return tuple(spread)
