"""Rows at the end of a table that sum the others up, and are no data."""

from __future__ import annotations

from typing import Any

import numpy as np

from motet.data._tables.cells import (
    MissingValues,
    is_numeric,
    is_text,
    numeric_values,
    to_cells,
)

FEWEST_ROWS = 3  # above a footer
ROUNDED = 1e-3  # relative error of a mean that is written with few digits


def has_footer(table: Any, missing: MissingValues, client: str | None) -> bool:
    """Tell whether the last row is a footer: numbers that are sums, means or counts of the others.

    Either it names a site that occurs nowhere else, such as "Total", or its only text occurs
    nowhere else in its column. A single number without a text may be the mean by chance.

    Args:
        table: A `pyarrow.Table`.
        missing: Which texts are missing values.
        client: Column that names the site of each row; None, or absent: there is none.
    """
    if len(table) - 1 < FEWEST_ROWS:
        return False
    summed, texts = _last_row(table, missing)
    if not summed:
        return False
    if client in table.column_names:
        sites = to_cells(table[client], missing)
        if sites.codes[-1] >= 0:
            is_new = int((sites.codes == sites.codes[-1]).sum()) == 1
            return is_new and (summed > 1 or len(texts) <= 1)
    is_named = len(texts) == 1 and _times(texts[0], texts[0][-1]) == 1
    return is_named or (not texts and summed > 1)


def _last_row(table: Any, missing: MissingValues) -> tuple[int, list[Any]]:
    """Count the numbers of the last row, 0 if one sums nothing up; and list columns of its texts.

    A column with a text among numbers is text, too.
    """
    last, summed = len(table) - 1, 0
    texts = [c for c in table.columns if is_text(c) and c[last].is_valid]
    for column in table.columns:
        if not is_numeric(column):
            continue
        values = numeric_values(column, missing)
        if np.isnan(values[last]):
            continue
        if not _sums_up(values[last], values[:last]):
            return 0, texts
        summed += 1
    return summed, texts


def _times(column: Any, value: Any) -> int:
    from pyarrow import compute

    return int(compute.sum(compute.equal(column, value)).as_py() or 0)


def _sums_up(value: float, above: Any) -> bool:
    known = above[~np.isnan(above)]
    if not len(known) or known.min() == known.max():  # in which any row is the mean
        return False
    if np.isclose(value, known.mean(), rtol=ROUNDED, atol=0):
        return True
    return any(np.isclose(value, total, rtol=1e-9, atol=0) for total in (known.sum(), len(above)))
