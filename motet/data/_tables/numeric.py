"""Text columns that hold numbers only, turned into columns of numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from motet.data._tables.cells import Cells, MissingValues, is_text, numbers_of, plain, to_cells
from motet.data._tables.fixes import fix
from motet.data._tables.numbers import (
    CLOCK,
    YES_NO,
    other_mark,
    read_numbers,
    thousand_or_fraction,
    to_number,
    units_in,
)

USUAL = 0.2  # share of the texts that have a unit, if it is one


class Numeric(NamedTuple):
    """A table whose text columns of numbers are numbers.

    Attributes:
        table: The table.
        units: Units that were written with the numbers, by column.
        remarks: What the owner of the table should know.
    """

    table: Any
    units: dict[str, str]
    remarks: list[str]


def numeric_text(
    table: Any,
    missing: MissingValues,
    decimal: str,
    *,
    keep: Sequence[str] = (),
    no_units: Sequence[str] = (),
    units: Mapping[str, str] | None = None,
    decimal_is_given: bool = False,
) -> Numeric:
    """Turn text columns that hold numbers only, such as " 1", "?" or "20 kg", into numbers.

    Args:
        table: A `pyarrow.Table`.
        missing: Which texts are missing values.
        decimal: Decimal separator.
        keep: Columns that stay text.
        no_units: Columns in which a text with a unit is text: those to predict.
        units: The unit that each column may have; None: any, if it is the same in all rows.
        decimal_is_given: Whether the user named the decimal separator.
    """
    import pyarrow

    found = Numeric(table, {}, [])
    for place, name in enumerate(table.column_names):
        column = table.column(place)
        if name in keep or not is_text(column):
            continue
        unit = "" if name in no_units else None if units is None else units.get(name, "")
        if not _may_be_numbers(column, missing, decimal, unit):
            continue
        cells = to_cells(plain(column), missing)
        unit = _unit(cells, decimal) if unit is None else unit
        numbers, wrong = numbers_of(cells, decimal, unit)
        if wrong or not cells.values:
            continue
        values = pyarrow.array(cells.look_up(numbers), from_pandas=True)
        whole = all(number.is_integer() and abs(number) < 2**53 for number in numbers.tolist())
        values = values.cast(pyarrow.int64()) if whole else values
        found = found._replace(table=found.table.set_column(place, name, values))
        _remark(found, name, cells, decimal, unit)
        if not decimal_is_given:
            found.remarks.extend(_on_marks(name, cells.values, decimal))
    return found


def _unit(cells: Cells, decimal: str) -> str:
    """Return the unit of a column; "" for none, several or a typing error such as 2O."""
    units = units_in(cells.values, decimal) or Counter()
    unit, times = next(iter(units.items()), ("", 0))
    return unit if len(units) == 1 and times >= max(2, USUAL * len(cells.values)) else ""


def _remark(found: Numeric, name: str, cells: Cells, decimal: str, unit: str) -> None:
    odd = [t for t in cells.values if to_number(t, decimal) is None]
    if not odd or unit in (YES_NO, CLOCK):  # these are expected where a schema says so
        return
    number = f"{numbers_of(Cells(cells.codes[:0], (odd[0],)), decimal, unit)[0][0]:.15g}"
    said = f'column "{name}": "{odd[0]}" is read as {number}'
    if unit:
        found.units[name] = unit
        said += f", in {unit}"
    found.remarks.append(f"{said}, and so on.")


def _on_marks(name: str, texts: Sequence[str], decimal: str) -> list[str]:
    """Say how 1.234 is read if that is not obvious, and how to read it in the other way."""
    other = other_mark(decimal)
    text = thousand_or_fraction(texts, other)
    if text is None and any(other in t and to_number(t, decimal) is None for t in texts):
        text = thousand_or_fraction(texts, decimal)
    if text is None:
        return []
    read, instead = (to_number(text, mark) for mark in (decimal, other))
    said = f'column "{name}": "{text}" is read as {read:.15g}.'
    if None in read_numbers(texts, other, None):  # 1.5 beside it leaves no other way
        return [said]
    return [f"{said} If it is {instead:.15g}, name the decimal separator: {fix('decimal', other)}."]


def _may_be_numbers(column: Any, missing: MissingValues, decimal: str, unit: str | None) -> bool:
    """Look at the first rows, so that long texts are not compared one by one."""
    few = to_cells(plain(column.slice(0, 200)), missing)
    unit = _unit(few, decimal) if unit is None else unit
    return not numbers_of(few, decimal, unit)[1]
