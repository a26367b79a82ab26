"""Raw rows to inputs: kinds, missing values, then scaling, one column at a time."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from itertools import accumulate
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from motet.data._schema import Column, Encoded, Remark, Scaling, Schema
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
from motet.errors import DataError, RequestError

EPOCH = date(1970, 1, 1)
DAYS_PER_YEAR = 365.2425
Matrix = NDArray[np.float32]
Mask = NDArray[np.bool_]
MANY_ROWS = 100_000
LARGEST = 1e38  # inputs are float32
T = TypeVar("T")


class Block(NamedTuple):
    """One column as numbers, before filling: NaN where a number is missing."""

    values: NDArray[Any]  # [rows, inputs without the indicator]
    holes: Mask  # [rows]


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


def encode_rows(
    schema: Schema,
    table: Any,
    site: str | Sequence[str] | NDArray[Any] | Cells | None,
    name: RowName | None,
    name_in_remarks: RowName | None = None,
) -> Encoded:
    """Turn raw rows into inputs; see `Schema.encode`."""
    columns, rows = _opened(schema, table)
    named = name or counted
    noticed = Noticed(named, [], name_in_remarks)
    sites = _sites(schema, columns, site, rows, noticed)
    x = np.empty((rows, len(schema.feature_names)), np.float32)

    def encode(column: Column, place: int) -> list[Remark]:
        own = Noticed(noticed.row_name, [], noticed.row_in_remarks)
        given = columns.get(column.name)
        block = (
            _absent(schema, column, rows, own)
            if given is None
            else read_block(schema, column, given, own)
        )
        part = x[:, place : place + len(column.features)]
        _write(schema, column, block, sites, own, part, place)
        return own.remarks

    widths = [len(column.features) for column in schema.columns]
    places = [0, *accumulate(widths)][:-1]
    remarks = in_threads(encode, schema.columns, places, rows=rows)
    return Encoded(x, (*noticed.remarks, *(remark for own in remarks for remark in own)))


def in_threads(work: Callable[..., T], *items: Sequence[Any], rows: int) -> list[T]:
    """Call a function for each column, in threads if there are many rows; results are in order."""
    if rows < MANY_ROWS:
        return list(map(work, *items))
    with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
        return list(pool.map(work, *items))


def _opened(schema: Schema, table: Any) -> tuple[dict[str, Any], int]:
    """Return the columns that the schema uses, as Arrow columns, and the number of rows."""
    import pyarrow

    wanted = {column.name for column in schema.columns} | {schema.client}
    if isinstance(table, pyarrow.RecordBatch):
        table = pyarrow.Table.from_batches([table])
    if isinstance(table, pyarrow.Table):
        times = Counter(table.column_names)
        twice = [name for name, count in times.items() if count > 1 and name in wanted]
        if twice:
            raise DataError(
                f'the table has several columns named "{twice[0]}". Rename all but one.'
            )
        pairs = zip(table.column_names, table.columns, strict=True)
        return {name: column for name, column in pairs if name in wanted}, len(table)
    if not isinstance(table, Mapping):
        raise RequestError(
            f"expected a pyarrow.Table or {{column: values}}, got a {type(table).__name__}."
        )
    columns = {str(name): as_column(values, str(name)) for name, values in table.items()}
    lengths = {len(column) for column in columns.values()}
    if len(lengths) > 1:
        raise DataError(f"all columns need the same number of values, got {sorted(lengths)}.")
    used = {name: column for name, column in columns.items() if name in wanted}
    return used, lengths.pop() if lengths else 0


def as_column(values: Any, name: str) -> Any:
    """Make an Arrow column of any values; numbers and text side by side become text."""
    import pyarrow

    if isinstance(values, pyarrow.Array | pyarrow.ChunkedArray):
        return values
    if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
        raise RequestError(f'column "{name}" must be a list of values, got {values!r}.')
    try:
        made = pyarrow.array(values, from_pandas=True)
        if not isinstance(made.type, pyarrow.BaseExtensionType):
            return made
        # Periods and intervals of pandas.
        known = made.is_valid().to_pylist()
        texts = [str(v) if there else None for v, there in zip(values, known, strict=True)]
        return pyarrow.array(texts, pyarrow.string())
    except (pyarrow.ArrowException, OverflowError, TypeError, ValueError):
        pass  # numbers and text side by side
    wrong = [value for value in values if not isinstance(value, str | int | float | bool | None)]
    if wrong:
        raise DataError(
            f'column "{name}" must hold numbers or text, got a {type(wrong[0]).__name__}.'
        )
    return pyarrow.array([None if value is None else str(value) for value in values])


class Sites(NamedTuple):
    """The site of each row, as a position in tables of statistics; the last one is everybody's."""

    codes: NDArray[np.int64] | int
    names: tuple[str, ...]

    def fills(self, schema: Schema, feature: int) -> Any:
        """Return the fill of each row, or one number for all."""
        assert schema.fills is not None
        own = [schema.site_fills.get(name, schema.fills)[feature] for name in self.names]
        return np.asarray([*own, schema.fills[feature]], np.float64)[self.codes]

    def scaling(self, schema: Schema, feature: int) -> tuple[Any, Any]:
        """Return mean and deviation of each row, or one pair for all."""
        assert schema.scaling is not None
        own: list[Scaling] = [schema.site_scaling.get(n, schema.scaling) for n in self.names]
        scales = [*own, schema.scaling]
        mean = np.asarray([s.mean[feature] for s in scales], np.float64)
        deviation = np.asarray([s.deviation[feature] for s in scales], np.float64)
        return mean[self.codes], deviation[self.codes]


def _sites(
    schema: Schema,
    columns: Mapping[str, Any],
    site: str | Sequence[str] | NDArray[Any] | Cells | None,
    rows: int,
    noticed: Noticed,
) -> Sites:
    known = {**schema.site_fills, **schema.site_scaling}
    if not known:
        return Sites(-1, ())
    key = same_spelling if schema.merge_spellings else exact_spelling
    places = {key(name): number for number, name in enumerate(known)}
    if site is None:
        given = columns.get(schema.client or "")
        if given is None:
            raise RequestError(
                "this schema has statistics of single sites, so it must know the site of the rows. "
                f"Pass site=, one of {', '.join(list(known)[:5])}, or use `schema.at(site)`."
            )
        cells = to_cells(given, MissingValues(schema.na))
    elif isinstance(site, Cells):
        cells = site
    elif isinstance(site, str):
        cells = Cells(np.zeros(rows, np.int32), (site,))
    else:
        found, inverse = np.unique(np.asarray(site), return_inverse=True)
        cells = Cells(inverse.astype(np.int32), tuple(str(name) for name in found.tolist()))
        if len(inverse) != rows:
            raise RequestError(f"expected one site for each of {rows} rows, got {len(inverse)}.")
    table = np.asarray([*(places.get(key(text), -1) for text in cells.values), -1], np.int64)
    codes = table[cells.codes]
    noticed.add(
        schema.client or "site",
        "unknown_site",
        codes < 0,
        lambda row: cells.values[cells.codes[row]] if cells.codes[row] >= 0 else "",
    )
    return Sites(codes, tuple(known))


def _absent(schema: Schema, column: Column, rows: int, noticed: Noticed) -> Block:
    if schema.fills is None and rows:
        raise DataError(
            f'the table has no column "{column.name}", and the schema has no fill for it. '
            "Add the column."
        )
    noticed.add(column.name, "missing_column", np.ones(rows, bool))
    width = len(column.features) - column.indicator
    empty = 0.0 if column.kind == "categorical" else np.nan
    return Block(np.full((rows, width), empty), np.ones(rows, bool))


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
            raise DataError(
                f'column "{column.name}" should hold numbers; {noticed.row_name(row)} has '
                f'"{text}". Correct it, or '
                f"treat it as missing with {fix('na', text)}."
            )
        values = cells.look_up(table)
    huge = np.abs(values) > LARGEST
    if huge.any():
        row = int(huge.argmax())
        raise DataError(
            f'column "{column.name}" should hold finite numbers; {noticed.row_name(row)} has '
            f"{values[row]}{_too_large(values[row])}. Correct it, or treat it as missing with "
            f"{fix('na', str(values[row]))}."
        )
    return values


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
    table = np.asarray([*(places.get(key(text), -1) for text in cells.values), -1], np.int64)
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
    block = np.zeros((len(codes), known + column.other), np.float32)
    codes = np.where(unknown & column.other, known, codes)
    there = np.flatnonzero(codes >= 0)
    block[there, codes[there]] = 1
    return Block(block, holes)


def _write(
    schema: Schema,
    column: Column,
    block: Block,
    sites: Sites,
    noticed: Noticed,
    x: Matrix,
    place: int,
) -> None:
    """Fill and scale a column's inputs, and write them to their place in the matrix."""
    holes = block.holes
    if holes.any():
        if schema.fills is None:
            raise missing_error(column.name, holes, noticed.row_name)
        if not any(r.column == column.name and r.what == "missing_column" for r in noticed.remarks):
            noticed.add(column.name, "filled", holes)
    for feature in range(x.shape[1]):
        is_flag = column.indicator and feature == x.shape[1] - 1
        values: NDArray[Any] = holes.astype(np.float64) if is_flag else block.values[:, feature]
        if not is_flag and column.kind != "categorical" and holes.any():
            values = np.where(holes, sites.fills(schema, place + feature), values)
        if schema.scaling is not None:
            mean, deviation = sites.scaling(schema, place + feature)
            values = (values - mean) / deviation
        x[:, feature] = values


def missing_error(name: str, holes: Mask, row_name: RowName) -> DataError:
    """Say that values are missing, where, and how to fill them."""
    return DataError(
        f'column "{name}": {int(holes.sum())} of {len(holes)} values are missing, the first in '
        f"{row_name(int(holes.argmax()))}. Fill them with {fix('missing', 'median')}, or leave the "
        f"column out with {fix('drop', name)}."
    )
