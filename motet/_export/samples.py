"""Made-up raw rows of a schema, on which a graph of raw columns is compared with the predictor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Any

import numpy as np

from motet._core.keys import Key
from motet._export.raw_graph import CATEGORIES, NUMBERS, is_numeric, raw_inputs
from motet.data import Column, Schema
from motet.data._tables.blocks import EPOCH

UNKNOWN = "not a category of the schema"
YEARS = 100 * 365  # days before and after 1970 from which dates are drawn
Rows = dict[str, list[Any]]


def sample_rows(schema: Schema, rows: int) -> Rows:
    """Draw rows that the schema accepts: every category, and missing values if they are filled."""
    return {
        column.name: _values(schema, column, rows, Key(0).fold("rows", column.name).numpy())
        for column in schema.columns
    }


def graph_inputs(schema: Schema, rows: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Lay raw rows out as the inputs of the graph of raw columns."""
    inputs = raw_inputs(schema)
    found: dict[str, Any] = {}
    if inputs.numbers:
        columns = [[as_number(value) for value in rows[name]] for name in inputs.numbers]
        found[NUMBERS] = np.asarray(columns, np.float64).T
    if inputs.categories:
        texts = [["" if v is None else str(v) for v in rows[name]] for name in inputs.categories]
        found[CATEGORIES] = np.asarray(texts, object).T
    return found


def _values(schema: Schema, column: Column, rows: int, rng: np.random.Generator) -> list[Any]:
    filled = schema.fills is not None
    if column.kind == "number":
        low = -1.0 if column.low is None else column.low
        high = 1.0 if column.high is None else column.high
        drawn: list[Any] = rng.uniform(low, high, rows).tolist()
    elif column.kind == "date":
        drawn = [EPOCH + timedelta(int(days)) for days in rng.integers(-YEARS, YEARS, rows)]
    else:
        known: list[Any] = list(column.categories)
        if filled or column.kind == "categorical":
            known.append("-12345.5" if is_numeric(column) else UNKNOWN)
        drawn = [known[place % len(known)] for place in range(rows)]
        rng.shuffle(drawn)
    if filled:
        drawn = [None if rng.random() < 0.2 else value for value in drawn]
    return drawn


def as_number(value: Any) -> float:
    """Write a raw value as the graph takes it: NaN if it is missing, dates as days."""
    if value is None:
        return np.nan
    return float((value - EPOCH).days) if isinstance(value, date) else float(value)
