"""Tables that were read, and the options by which they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from motet.data._schema import Schema
from motet.data._tables.cells import MissingValues, RowName
from motet.data._tables.numeric import Numeric, numeric_text
from motet.data._tables.repairs import clear_rows


@dataclass(frozen=True, kw_only=True)
class HowToRead:
    """Options of reading a table file; None is detected.

    Attributes:
        encoding: Of text files.
        delimiter: Between the cells of text files.
        decimal: Decimal separator of text files, "." or ",".
        sheet: Sheet of an Excel file; None is the first.
        skip_rows: Lines before the header.
        columns: Column names of a file without a header.
        bad_rows: "error", or "skip" for rows with too many or too few cells.
        na: Texts that mean a missing value, besides the usual ones.
        as_text: Columns that are read as text, such as ids with leading zeros.
        target: The column to predict, in which "5 mg" is a class and not a number with a unit.
        units: The unit that each column may have; None: any, if it is the same in all rows.
        likely_decimal: Decimal separator of a schema, for tables that do not tell theirs.
        every_row: Whether each row counts, also one without a value, unless it is after the last.
    """

    encoding: str | None = None
    delimiter: str | None = None
    decimal: str | None = None
    sheet: str | None = None
    skip_rows: int = 0
    columns: tuple[str, ...] | None = None
    bad_rows: str = "error"
    na: tuple[str, ...] = ()
    as_text: tuple[str, ...] = ()
    target: str | None = None
    units: Mapping[str, str] | None = None
    likely_decimal: str | None = None
    every_row: bool = False

    @classmethod
    def for_schema(cls, schema: Schema, as_text: tuple[str, ...] | None = None) -> HowToRead:
        """Read rows for a schema as its training rows were read: codes stay text."""
        codes = [c.name for c in schema.columns if c.kind in ("categorical", "ordinal")]
        return cls(
            na=schema.na,
            as_text=tuple(codes) if as_text is None else as_text,
            target=schema.target.name,
            units={c.name: c.unit for c in schema.columns if c.unit},
            likely_decimal=schema.decimal,
        )

    def numeric(self, table: Any, decimal: str | None = None) -> Numeric:
        """Turn text columns that hold numbers only into columns of numbers."""
        return numeric_text(
            table,
            MissingValues(self.na),
            decimal or self.decimal or self.likely_decimal or ".",
            keep=self.as_text,
            no_units=() if self.target is None else (self.target,),
            units=self.units,
            decimal_is_given=(self.decimal or self.likely_decimal) is not None,
        )


@dataclass(frozen=True)
class Opened:
    """A table that was read.

    Attributes:
        table: Its rows, a `pyarrow.Table`.
        name: Name of the data.
        row_name: Names a row as a text editor or a spreadsheet numbers it.
        remarks: What its owner should know about how it was read.
        format: How it was read, for people: "CSV, UTF-8, delimiter ;".
        decimal: Decimal separator of numbers that are still text.
        units: Units that were written with numbers, by column.
        left_out: Those of the remarks that are about rows of the file that are not in the table.
    """

    table: Any
    name: str
    row_name: Callable[[int], str]
    remarks: tuple[str, ...] = ()
    format: str = ""
    decimal: str = "."
    units: Mapping[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()

    @property
    def has_header(self) -> bool:
        """Whether the names of columns are a line of a file."""
        return "text, " in self.format or "Excel" in self.format


def cleaned(opened: Opened, how: HowToRead) -> Opened:
    """Leave out rows that are no data, and turn columns of numbers that are text into numbers."""
    keep, remarks = clear_rows(opened.table, only_last=how.every_row)
    table, row_name = opened.table, opened.row_name
    if keep is not None:
        table, row_name = table.take(keep), _renamed(row_name, keep.tolist())
    table, units, more = how.numeric(table, opened.decimal)
    return replace(
        opened,
        table=table,
        row_name=row_name,
        units=units,
        remarks=(*opened.remarks, *remarks, *more),
    )


def _renamed(row_name: RowName, keep: list[int]) -> RowName:
    return lambda row: row_name(keep[row])
