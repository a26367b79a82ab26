"""Rows at the end of a table that sum the others up, and are no data."""

from __future__ import annotations

from typing import Any

import numpy as np

from motet.data._tables.cells import Cells, MissingValues, is_numeric, is_text, numeric_values

FEWEST_ROWS = 3  # above a footer
ROUNDED = 1e-3  # relative error of a mean that is written with few digits


def has_footer(table: Any, sites: Cells, missing: MissingValues) -> bool:
    """Tell whether the last row is a footer: numbers that are sums, means or counts of the others.

    Its site occurs nowhere else. Either several columns are summed up, or one is and the others are
    empty.
    """
    last = len(table) - 1
    if last < FEWEST_ROWS or sites.codes[last] < 0:
        return False
    if (sites.codes == sites.codes[last]).sum() > 1:
        return False
    summed, others = 0, 0
    for column in table.columns:
        if not is_numeric(column):
            others += is_text(column) and bool(column[last].is_valid)
            continue
        values = numeric_values(column, missing)
        if np.isnan(values[last]):
            continue
        if not _sums_up(values[last], values[:last]):
            return False
        summed += 1
    return summed > 1 or (summed == 1 and others <= 1)  # one of them names the site


def _sums_up(value: float, above: Any) -> bool:
    known = above[~np.isnan(above)]
    if not len(known) or known.min() == known.max():  # in which any row is the mean
        return False
    if np.isclose(value, known.mean(), rtol=ROUNDED, atol=0):
        return True
    return any(np.isclose(value, total, rtol=1e-9, atol=0) for total in (known.sum(), len(above)))
