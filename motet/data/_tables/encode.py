"""Raw rows to inputs: kinds, missing values, then scaling."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from motet.data._columns import Column, Encoded, Remark
from motet.data._tables.blocks import (
    Block,
    Noticed,
    absent,
    counted,
    missing_error,
    read_block,
)
from motet.data._tables.cells import (
    Cells,
    Floats,
    MissingValues,
    RowName,
    exact_spelling,
    is_numeric,
    same_spelling,
    to_cells,
)
from motet.data._tables.reading import MANY_ROWS, Reading
from motet.errors import DataError, RequestError

if TYPE_CHECKING:  # a schema encodes rows by these functions, so it cannot be imported here
    from motet.data._schema import Schema

Matrix = NDArray[np.float32]
SLICE = 1 << 16  # rows that are encoded at a time; with fewer, threads wait for one another
T = TypeVar("T")


def encode_rows(
    schema: Schema,
    table: Any,
    site: str | Sequence[str] | NDArray[Any] | Cells | None,
    name: RowName | None,
    name_in_remarks: RowName | None = None,
    reading: Reading | None = None,
) -> Encoded:
    """Turn raw rows into inputs; see `Schema.encode`.

    Columns that are in `reading` are not read again, and remarks on single cells left out.
    """
    columns, rows = _opened(schema, table)
    noticed = Noticed(name or counted, [], name_in_remarks)
    sites = _sites(schema, columns, site, rows, noticed)
    x = np.empty((rows, len(schema.feature_names)), np.float32)
    encoder = _Encoder(schema, columns, sites, noticed, x, reading or {})
    if rows >= MANY_ROWS:
        with suppress(DataError):  # raised again below, with the number of all rows
            return Encoded(x, (*noticed.remarks, *encoder.in_slices()))
    remarks = [remark for number in range(len(schema.columns)) for remark in encoder.whole(number)]
    return Encoded(x, (*noticed.remarks, *remarks))


class _Encoder(NamedTuple):
    """Writes the inputs of raw rows into a matrix."""

    schema: Schema
    columns: Mapping[str, Any]  # Arrow columns by name
    sites: Sites
    noticed: Noticed  # names rows
    x: Matrix
    reading: Reading

    def whole(self, number: int) -> list[Remark]:
        """Encode all rows of one column."""
        own = self.noticed.from_row(0)
        block = self._read(self.schema.columns[number], own)
        self._write(number, block, slice(0, len(self.x)), own)
        return own.remarks

    def in_slices(self) -> list[Remark]:
        """Encode all columns, a few rows of all of them at a time, which saves memory and time.

        Texts are read at once, since each distinct one is looked at.
        """
        used = self.schema.columns
        named = [self.noticed.from_row(0) for _ in used]
        plain = [self._is_plain(column) for column in used]
        blocks = in_threads(
            lambda n: None if plain[n] else self._read(used[n], named[n]), range(len(used))
        )

        def encode(start: int) -> list[list[Remark]]:
            part = slice(start, min(start + SLICE, len(self.x)))
            return [self._encode(number, blocks[number], part) for number in range(len(used))]

        found = in_threads(encode, range(0, len(self.x), SLICE))
        return [
            remark
            for number, of_column in enumerate(zip(*found, strict=True))
            for remark in _joined([named[number].remarks, *of_column])
        ]

    def _is_plain(self, column: Column) -> bool:
        """Whether a column holds numbers as such, of which a slice costs nothing."""
        given = self.columns.get(column.name)
        is_plain = column.kind == "number" and given is not None and is_numeric(given)
        return is_plain and column.name not in self.reading

    def _read(self, column: Column, own: Noticed) -> Block:
        if column.name in self.reading:
            return self.reading[column.name]
        given = self.columns.get(column.name)
        if given is None:
            return absent(self.schema, column, len(self.x), own)
        return read_block(self.schema, column, given, own)

    def _encode(self, number: int, block: Block | None, part: slice) -> list[Remark]:
        """Encode some rows of a column, whose block may have been read."""
        own, column = self.noticed.from_row(part.start), self.schema.columns[number]
        if block is None:
            given = self.columns[column.name].slice(part.start, part.stop - part.start)
            block = read_block(self.schema, column, given, own)
        else:
            block = block.rows(part)
        self._write(number, block, part, own)
        return own.remarks

    def _write(self, number: int, block: Block, part: slice, noticed: Noticed) -> None:
        """Fill and scale inputs, and write them to their place in the matrix."""
        schema, column, holes = self.schema, self.schema.columns[number], block.holes
        any_hole = bool(holes.any())
        if any_hole and schema.fills is None:
            raise missing_error(column.name, holes, noticed.row_name)
        if any_hole and column.name in self.columns:
            noticed.add(column.name, "filled", holes)
        place, width = self.sites.places[number], len(column.features)
        x, sites = self.x[part, place : place + width], self.sites.rows(part)
        if column.kind == "categorical":
            _write_categories(x[:, : width - column.indicator], block.values, sites, place)
        else:
            for feature, given in enumerate(block.values.T):
                fill = sites.fill(place + feature) if any_hole else None
                values = given if fill is None else np.where(holes, fill, given)
                x[:, feature] = sites.scale(values, place + feature)
        if column.indicator:
            x[:, -1] = sites.scale(holes.astype(np.float64), place + width - 1)


def _write_categories(x: Matrix, codes: NDArray[Any], sites: Sites, place: int) -> None:
    """Write the inputs of categories: 1 for the row's own, 0 for the others, then scaled."""
    width = x.shape[1]
    if isinstance(sites.codes, int):  # a row is one of few
        kinds = np.zeros((width + 1, width))  # the last one: no category
        np.fill_diagonal(kinds, 1)
        scaled = [sites.scale(kinds[:, n], place + n) for n in range(width)]
        np.take(np.stack(scaled, axis=1).astype(np.float32), codes, axis=0, out=x, mode="wrap")
        return
    for feature in range(width):
        x[:, feature] = sites.scale((codes == feature).astype(np.float64), place + feature)


def _joined(slices: Sequence[list[Remark]]) -> list[Remark]:
    """Join the remarks on slices of a column: the first row of all, and the number of rows."""
    found: dict[str, Remark] = {}
    for remark in (remark for remarks in slices for remark in remarks):
        before = found.get(remark.what)
        found[remark.what] = before._replace(rows=before.rows + remark.rows) if before else remark
    return sorted(found.values(), key=lambda remark: remark.what == "filled")  # noticed last


def in_threads(work: Callable[[Any], T], items: Sequence[Any]) -> list[T]:
    """Call a function for each item, in threads; results are in order."""
    with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
        return list(pool.map(work, items))


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
        dense = values.to_dense() if hasattr(values, "to_dense") else values  # pandas' sparse ones
        made = pyarrow.array(dense, from_pandas=True)
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
    """The site of each row, as a position in tables of statistics; the last one is everybody's.

    Attributes:
        codes: Position of each row, or -1 for all.
        places: First input of each column.
        fills: What missing values become, [inputs, sites]; None if there are no fills.
        mean: Scaling of inputs, [inputs, sites]; None if they are not scaled.
        deviation: Like the mean.
    """

    codes: NDArray[np.int64] | int
    places: tuple[int, ...]
    fills: Floats | None
    mean: Floats | None
    deviation: Floats | None

    @classmethod
    def of(cls, schema: Schema, codes: NDArray[np.int64] | int, names: Sequence[str]) -> Sites:
        """Make the tables of a schema for sites with these names."""
        widths = [len(column.features) for column in schema.columns]
        places = (0, *accumulate(widths))[:-1]
        fills = mean = deviation = None
        if schema.fills is not None:
            each = [schema.site_fills.get(name, schema.fills) for name in names]
            fills = np.asarray([*each, schema.fills], np.float64).T
        if schema.scaling is not None:
            own = [schema.site_scaling.get(name, schema.scaling) for name in names]
            mean = np.asarray([s.mean for s in (*own, schema.scaling)], np.float64).T
            deviation = np.asarray([s.deviation for s in (*own, schema.scaling)], np.float64).T
        return cls(codes, places, fills, mean, deviation)

    def rows(self, part: slice) -> Sites:
        """Choose rows."""
        return self if isinstance(self.codes, int) else self._replace(codes=self.codes[part])

    def fill(self, feature: int) -> Any:
        """Return the fill of each row, or one number for all."""
        assert self.fills is not None
        return self.fills[feature][self.codes]

    def scale(self, values: NDArray[Any], feature: int) -> NDArray[Any]:
        """Scale an input."""
        if self.mean is None or self.deviation is None:
            return values
        mean, deviation = self.mean[feature][self.codes], self.deviation[feature][self.codes]
        return np.asarray((values - mean) / deviation)


def _sites(
    schema: Schema,
    columns: Mapping[str, Any],
    site: str | Sequence[str] | NDArray[Any] | Cells | None,
    rows: int,
    noticed: Noticed,
) -> Sites:
    known = {**schema.site_fills, **schema.site_scaling}
    if not known:
        return Sites.of(schema, -1, ())
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
    return Sites.of(schema, codes, tuple(known))
