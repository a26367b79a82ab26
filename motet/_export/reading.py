"""Raw rows to predict, read as the tables for training are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from motet._export.raw_graph import is_numeric
from motet.data import Schema
from motet.data._tables.cells import RowName
from motet.data._tables.numbers import to_number
from motet.data._tables.opened import HowToRead
from motet.data._tables.reading_options import checked
from motet.data._tables.sources import SITE, as_named, open_source
from motet.errors import DataError, RequestError


class Rows(NamedTuple):
    """Rows of a table.

    Attributes:
        table: A `pyarrow.Table`.
        row_name: Names a row in messages, as a text editor would.
        remarks: What was noticed while reading, such as another encoding.
        left_out: Those of the remarks that are about rows of the file that are not in the table.
    """

    table: Any
    row_name: RowName
    remarks: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    def refuse_left_out(self) -> None:
        """Refuse rows that were left out, as `strict` asks for."""
        if self.left_out:
            raise DataError(f"{self.left_out[0]} With --strict (strict=True), remove it first.")


def read_rows(source: Any, schema: Schema, **reading: Any) -> Rows:
    """Read rows from a path, a data frame, an Arrow table, columns by name or a list of dicts.

    Encoding, delimiter and decimal separator are detected, as they are for training, unless
    `reading` names them: it has the options of `from_table` for files.
    """
    if isinstance(source, Rows):
        return source
    if isinstance(source, list | tuple) and not all(isinstance(s, str | Path) for s in source):
        source = _columns(source)
    client = schema.client or SITE
    how = HowToRead.for_schema(schema, (*_as_text(schema), client))  # sites may be called 007
    how = replace(how, every_row=True, **checked(reading))
    opened = as_named(open_source(source, how, client)[0], client)
    return Rows(opened.table, opened.row_name, opened.remarks, opened.left_out)


def with_na(schema: Schema, texts: Sequence[str]) -> Schema:
    """Add texts that mean a missing value."""
    return replace(schema, na=(*schema.na, *texts)) if texts else schema


def _as_text(schema: Schema) -> tuple[str, ...]:
    """List columns whose categories look like numbers but are not, such as "007"."""
    return tuple(
        column.name
        for column in schema.columns
        if any(to_number(text, ".") is not None for text in column.categories)
        and not is_numeric(column)
    )


def _columns(rows: Sequence[Any]) -> dict[str, list[Any]]:
    """Turn rows into columns; a key that a row does not have is missing there."""
    wrong = next((row for row in rows if not isinstance(row, Mapping)), None)
    if wrong is not None:
        raise RequestError(f"a row must be {{column: value}}; got a {type(wrong).__name__}.")
    names = dict.fromkeys(str(name) for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}
