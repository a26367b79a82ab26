"""What is used of a table: columns, missing values, and how sites differ."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motet.data._columns import Column
from motet.data._schema import Schema
from motet.data._tables.aggregates import Aggregates
from motet.data._tables.statistics import pooled_mean

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ColumnOverview:
    """One input column.

    Attributes:
        name: Of the column.
        kind: Of the column.
        inputs: What it becomes, for people.
        fill: What missing values become, for people; "" if they are refused or never occur.
        missing: Share of missing training values at each site.
        shift: How much each site differs: for numbers the distance of its mean from that of all
            sites in standard deviations, for categories the total variation distance.
    """

    name: str
    kind: str
    inputs: str
    fill: str
    missing: Floats
    shift: Floats

    @property
    def most_shifted(self) -> int:
        """Position of the site that differs most."""
        return int(np.argmax(np.nan_to_num(self.shift)))

    @property
    def largest_shift(self) -> float:
        """Largest difference of a site."""
        return float(np.nan_to_num(self.shift).max(initial=0.0))


@dataclass(frozen=True)
class Overview:
    """What is used of a table.

    Attributes:
        sites: Names.
        rows: Training rows of each site.
        columns: The input columns.
    """

    sites: tuple[str, ...]
    rows: NDArray[np.int64]
    columns: tuple[ColumnOverview, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the overview as JSON values."""
        return {
            column.name: {
                "kind": column.kind,
                "inputs": column.inputs,
                "fill": column.fill,
                "missing": dict(zip(self.sites, column.missing.round(6).tolist(), strict=True)),
                "shift": {
                    site: None if math.isnan(value) else round(value, 6)
                    for site, value in zip(self.sites, column.shift.tolist(), strict=True)
                },
            }
            for column in self.columns
        }


def overview(schema: Schema, aggregates: Aggregates) -> Overview:
    """Describe the columns of a table from the aggregates of its sites."""
    middle = pooled_mean(aggregates)
    total = np.maximum(aggregates.known.sum(axis=0), 1)
    between = aggregates.known * (aggregates.mean - middle) ** 2
    deviation = np.sqrt((aggregates.spread + between).sum(axis=0) / total)
    columns, place = [], 0
    for number, column in enumerate(schema.columns):
        width = len(column.features) - column.indicator
        part = slice(place, place + width)
        shift = _shift(column, aggregates, middle[part], deviation[part], part)
        missing = aggregates.missing[:, number] / np.maximum(aggregates.rows, 1)
        columns.append(
            ColumnOverview(
                column.name,
                column.kind,
                _inputs(column),
                _fill(schema, column, missing),
                missing,
                shift,
            )
        )
        place += width
    return Overview(aggregates.sites, aggregates.rows, tuple(columns))


def _shift(
    column: Column, aggregates: Aggregates, middle: Floats, deviation: Floats, part: slice
) -> Floats:
    known = aggregates.known[:, part]
    if column.kind == "categorical":
        there = aggregates.rows > 0
        distance = np.abs(aggregates.mean[:, part] - middle).sum(axis=1) / 2
        return np.where(there, distance, np.nan)
    scale = np.where(deviation > 0, deviation, 1.0)
    distances = np.where(known > 0, np.abs(aggregates.mean[:, part] - middle) / scale, np.nan)
    worst = np.nan_to_num(distances, nan=-1.0).max(axis=1)
    return np.where(worst < 0, np.nan, worst)


def _inputs(column: Column) -> str:
    unit = f" {column.unit}" if column.unit else ""
    if column.kind == "categorical":
        known = [*column.categories, *(["(other)"] if column.other else [])]
        shown = " ".join(known[:6]) + (" ..." if len(known) > 6 else "")
        text = f"{len(known)} inputs: {shown}"
    elif column.kind == "ordinal":
        text = " < ".join(column.categories)
    elif column.kind == "date":
        text = " ".join(column.parts)
    elif column.low is not None and column.high is not None:
        text = f"{column.low:g} to {column.high:g}{unit}"
    else:
        text = f"number{unit}"
    return f"{text} + missing" if column.indicator else text


def _fill(schema: Schema, column: Column, missing: Floats) -> str:
    if not missing.any():
        return ""
    if schema.fills is None:
        return "refused"
    if column.kind == "categorical":
        return "zeros"
    if schema.site_fills:
        return "by site"
    place = schema.feature_names.index(column.features[0])
    value = schema.fills[place]
    return column.categories[round(value)] if column.kind == "ordinal" else f"{value:g}"
