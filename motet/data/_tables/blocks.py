"""Columns as numbers, before missing values are filled and inputs are scaled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from motet.data._columns import Column, Remark
from motet.data._tables.cells import (
    Cells,
    Floats,
    MissingValues,
    RowName,
    days_of,
    exact_spelling,
    is_numeric,
    numbers_of,
    numeric_values,
    same_spelling,
    to_cells,
)
from motet.data._tables.fixes import fix
from motet.data._tables.numbers import CLOCK, YES_NO
from motet.errors import DataError

if TYPE_CHECKING:  # a schema encodes rows by these functions, so it cannot be imported here
    from motet.data._schema import Schema

EPOCH = date(1970, 1, 1)
DAYS_PER_YEAR = 365.2425
LARGEST = 1e38  # inputs are float32
MANY_TEXTS = 10  # too many to name each as missing
Mask = NDArray[np.bool_]


class Block(NamedTuple):
    """One column as numbers, before filling.

    Attributes:
        values: Numbers, [rows, inputs without the indicator], NaN where one is missing. Of
            categories only the number of the input that is 1, [rows]; -1 if none is.
        holes: Whether the value is missing, [rows].
    """

    values: NDArray[Any]
    holes: Mask

    def rows(self, chosen: Any) -> Block:
        """Choose rows, by a slice or by their numbers."""
        if isinstance(chosen, slice):
            return Block(self.values[chosen], self.holes[chosen])
        # Much faster than an index if there is one value per row.
        values = self.values.take(chosen, axis=0)
        is_code = self.values.ndim == 1
        return Block(values, self.holes.take(chosen) if is_code else np.isnan(values[:, 0]))


@dataclass
class Noticed:
    """Collects remarks while rows are encoded.

    Attributes:
        row_name: Names a row in errors.
        remarks: What was noticed.
        row_in_remarks: Names a row in remarks, if another name is enough: to find the line of a
            row may take a second.
    """

    row_name: RowName
    remarks: list[Remark]
    row_in_remarks: RowName | None = None

    def from_row(self, start: int) -> Noticed:
        """Collect for rows that are counted from another one."""
        named, in_remarks = self.row_name, self.row_in_remarks or self.row_name
        return Noticed(lambda row: named(start + row), [], lambda row: in_remarks(start + row))

    def add(
        self,
        column: str,
        what: Literal["filled", "unknown", "out_of_range", "missing_column", "unknown_site"],
        rows: Mask,
        example: Callable[[int], str] = lambda _: "",
    ) -> None:
        """Remark on the rows of a mask, if there are any."""
        if rows.any():
            first = int(rows.argmax())
            count = int(rows.sum())
            name = (self.row_in_remarks or self.row_name)(first)
            self.remarks.append(Remark(column, what, count, name, example(first)))


def counted(row: int) -> str:
    """Name a row by its number."""
    return f"row {row + 1}"


def absent(schema: Schema, column: Column, rows: int, noticed: Noticed) -> Block:
    """Make the block of a column that the table does not have."""
    if schema.fills is None and rows:
        raise DataError(
            f'the table has no column "{column.name}", and the schema has no fill for it. '
            "Add the column."
        )
    noticed.add(column.name, "missing_column", np.ones(rows, bool))
    width = len(column.features) - column.indicator
    is_code = column.kind == "categorical"
    values = np.full(rows, -1, np.int32) if is_code else np.full((rows, width), np.nan)
    return Block(values, np.ones(rows, bool))


def read_block(schema: Schema, column: Column, given: Any, noticed: Noticed) -> Block:
    """Read one column as numbers, without filling or scaling."""
    missing = MissingValues(schema.na)
    if column.kind == "number":
        values = _numbers(schema, column, given, missing, noticed)
    elif column.kind == "date":
        return _dates(column, given, missing, noticed)
    else:
        return _categories(schema, column, to_cells(given, missing), noticed)
    if column.low is not None and column.high is not None:
        outside = (values < column.low) | (values > column.high)
        noticed.add(column.name, "out_of_range", outside, lambda row: f"{values[row]:g}")
    return Block(values[:, None], np.isnan(values))


def _numbers(
    schema: Schema, column: Column, given: Any, missing: MissingValues, noticed: Noticed
) -> Floats:
    if is_numeric(given):
        values = numeric_values(given, missing)
    else:
        cells = to_cells(given, missing)
        table, wrong = numbers_of(cells, schema.decimal, column.unit)
        if wrong:
            text, row = cells.values[wrong[0]], cells.first(wrong[0])
            wanted = {YES_NO: "yes or no", CLOCK: "times of day"}.get(column.unit or "", "numbers")
            raise DataError(
                f'column "{column.name}" should hold {wanted}; {noticed.row_name(row)} has '
                f'"{text}". Correct it, or '
                f"treat it as missing with {fix('na', text)}."
            )
        values = cells.look_up(table)
    # Without a temporary array for the usual case.
    if max(np.fmax.reduce(values, initial=0.0), -np.fmin.reduce(values, initial=0.0)) > LARGEST:
        raise _not_finite(column.name, values, noticed.row_name)
    return values


def _not_finite(name: str, values: Floats, row_name: RowName) -> DataError:
    wrong = np.abs(values) > LARGEST
    row, texts = int(wrong.argmax()), [str(value) for value in np.unique(values[wrong])]
    found = (
        f'column "{name}" should hold finite numbers; {row_name(row)} has '
        f"{values[row]}{_too_large(values[row])}."
    )
    if len(texts) > MANY_TEXTS:
        return DataError(
            f"{found} Leave the column out with {fix('drop', name)}, or correct its "
            f"{int(wrong.sum())} such numbers in the table."
        )
    return DataError(f"{found} Correct it, or treat it as missing with {fix('na', *texts)}.")


def _too_large(value: float) -> str:
    return f", which is above {LARGEST:g}" if np.isfinite(value) else ""


def _dates(column: Column, given: Any, missing: MissingValues, noticed: Noticed) -> Block:
    days, cells = days_of(given, missing, column.format)
    wrong = np.isnan(days) & (cells.codes >= 0)
    if wrong.any():
        row = int(wrong.argmax())
        raise DataError(
            f'column "{column.name}" should hold dates such as '
            f"{EPOCH.strftime(column.format or '%Y-%m-%d')}; {noticed.row_name(row)} has "
            f'"{cells.values[cells.codes[row]]}". Correct it, or treat it as missing with '
            f"{fix('na', cells.values[cells.codes[row]])}."
        )
    return Block(np.stack([date_part(days, p, column) for p in column.parts], 1), np.isnan(days))


def date_part(days: Floats, part: str, column: Column) -> Floats:
    """Compute a part of dates, given as days since 1970-01-01; NaN stays NaN."""
    if part == "days":
        return days
    if part == "age":
        assert column.reference is not None
        reference = (date.fromisoformat(column.reference) - EPOCH).days
        return (reference - days) / DAYS_PER_YEAR
    known = np.where(np.isnan(days), 0, days).astype("datetime64[D]")
    year = known.astype("datetime64[Y]")
    parts: dict[str, Callable[[], NDArray[np.int64]]] = {
        "year": lambda: year.astype(np.int64) + 1970,
        "month": lambda: known.astype("datetime64[M]").astype(np.int64) % 12 + 1,
        "day_of_year": lambda: (known - year).astype(np.int64) + 1,
        "weekday": lambda: (known.astype(np.int64) + 3) % 7,  # 1970-01-01 was a Thursday
    }
    return np.where(np.isnan(days), np.nan, parts[part]().astype(np.float64))


def _categories(schema: Schema, column: Column, cells: Cells, noticed: Noticed) -> Block:
    key = same_spelling if schema.merge_spellings else exact_spelling
    places = {key(category): number for number, category in enumerate(column.categories)}
    table = np.asarray([*(places.get(key(text), -1) for text in cells.values), -1], np.int32)
    codes, holes = table[cells.codes], cells.codes < 0
    unknown = (codes < 0) & ~holes
    known = len(column.categories)
    if not column.other:  # with it, rare categories of the training rows are expected to be unknown
        noticed.add(column.name, "unknown", unknown, lambda row: cells.values[cells.codes[row]])
    if column.kind == "ordinal":
        if unknown.any() and schema.fills is None:
            row = int(unknown.argmax())
            raise DataError(
                f'column "{column.name}" should hold one of {", ".join(column.categories)}; '
                f'{noticed.row_name(row)} has "{cells.values[cells.codes[row]]}". Correct it.'
            )
        values = np.where(codes < 0, np.nan, codes.astype(np.float64))
        return Block(values[:, None], codes < 0)
    return Block(np.where(unknown, known, codes) if column.other else codes, holes)


def missing_error(name: str, holes: Mask, row_name: RowName) -> DataError:
    """Say that values are missing, where, and how to fill them."""
    return DataError(
        f'column "{name}": {int(holes.sum())} of {len(holes)} values are missing, the first in '
        f"{row_name(int(holes.argmax()))}. Fill them with {fix('missing', 'median')}, or leave the "
        f"column out with {fix('drop', name)}."
    )
