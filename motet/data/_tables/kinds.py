"""What each input column is: a number, a category, an order or a date."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

import numpy as np

from motet._core.text import listed, plural
from motet.data._columns import Column
from motet.data._tables.blocks import EPOCH, MANY_TEXTS
from motet.data._tables.categories import MANY_CATEGORIES, Categories, choose_categories
from motet.data._tables.cells import (
    Cells,
    MissingValues,
    RowName,
    date_formats,
    days_of,
    exact_spelling,
    is_numeric,
    is_opaque,
    is_temporal,
    numbers_of,
    plain,
    same_spelling,
    to_cells,
)
from motet.data._tables.fixes import fix
from motet.data._tables.numbers import CLOCK, YES_NO, is_yes_no, other_mark, to_hours, with_unit
from motet.data._tables.options import TableOptions
from motet.data._tables.spellings import merged
from motet.errors import DataError, RequestError

MARKS = {".": "a point", ",": "a comma"}
MOSTLY = 0.5  # share of rows from which a column with some texts counts as numbers


@dataclass
class Found:
    """What was found out about the columns."""

    columns: list[Column] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    texts: list[tuple[str, str]] = field(default_factory=list)  # columns, and an example of each
    dates: list[tuple[str, str]] = field(default_factory=list)
    various: list[str] = field(default_factory=list)  # columns whose texts hardly repeat


def find_columns(
    table: Any, names: Sequence[str], options: TableOptions, row_name: RowName
) -> tuple[tuple[Column, ...], tuple[str, ...]]:
    """Decide the kind of every input column; refuse text that has none."""
    found, missing = Found(), MissingValues(options.na)
    asked = _reference(table, options, missing, row_name)  # also refuses a day that is none
    reference = asked if options.dates else None
    for name in names:
        column = table[name]
        _refuse_nested(name, column)
        if name in options.categorical:
            found.columns.append(_categorical(name, column, options, missing, found))
        elif name in options.ordinal:
            found.columns.append(_ordinal(name, column, options, missing, row_name))
        elif name in options.dates:
            found.columns.append(_date(name, column, options, missing, reference, row_name))
        elif is_temporal(column):
            value = next((v for v in plain(column).to_pylist() if v is not None), None)
            found.dates.append((name, f"{value!s:.10} in {row_name(_first(column))}"))
        elif is_numeric(column) or _holds_numbers(column, options, missing):
            found.columns.append(_number(name, column, options))
        elif is_yes_no((cells := to_cells(column, missing)).values):
            found.columns.append(Column(name=name, unit=YES_NO))
            found.remarks.append(_on_answers(name, cells))
        elif cells.values and all(to_hours(text) is not None for text in cells.values):
            found.columns.append(Column(name=name, unit=CLOCK))
            found.remarks.append(
                f'column "{name}": times of day are read as hours after midnight, such as '
                f'"{cells.values[0]}" as {to_hours(cells.values[0]):.4g}.'
            )
        else:
            _note_text(name, cells, found, row_name, options.decimal)
    _refuse_undecided(found)
    ages = any("age" in parts for parts in options.dates.values())
    if reference and ages and options.reference_date is None:
        found.remarks.append(
            f"ages are measured on {reference}, the latest date in the table; for another day use "
            f"{fix('reference_date', reference)}."
        )
    return tuple(found.columns), tuple(found.remarks)


def _on_answers(name: str, cells: Cells) -> str:
    numbers = numbers_of(cells, ".", YES_NO)[0]
    yes, no = (
        listed([f'"{t}"' for t, n in zip(cells.values, numbers, strict=True) if n == answer])
        for answer in (1, 0)
    )
    return f'column "{name}": {yes} is read as 1, {no} as 0.'


def _refuse_nested(name: str, column: Any) -> None:
    """Refuse lists, structures and bytes, which are not cells."""
    if is_opaque(column):
        raise DataError(
            f'column "{name}" should hold numbers, texts or dates, got {column.type}. Leave it out '
            f"with {fix('drop', name)}."
        )


def _holds_numbers(column: Any, options: TableOptions, missing: MissingValues) -> bool:
    cells = to_cells(column, missing)
    return bool(cells.values) and not numbers_of(cells, options.decimal)[1]


def _first(column: Any) -> int:
    return int(np.asarray(plain(column).is_valid()).argmax())


def _number(name: str, column: Any, options: TableOptions) -> Column:
    if column.null_count == len(column):
        raise DataError(
            f'column "{name}" has no value in any row. Leave it out with {fix("drop", name)}.'
        )
    # So that true and "TRUE" are accepted in new rows, too.
    is_answer = str(column.type) == "bool"
    return Column(name=name, unit=options.units.get(name, YES_NO if is_answer else None))


def _categorical(
    name: str, column: Any, options: TableOptions, missing: MissingValues, found: Found
) -> Column:
    how = Categories(rare=options.rare, ignore_case=options.merge_spellings)
    chosen = choose_categories(name, to_cells(column, missing), len(column), how)
    found.remarks += chosen.remarks
    return Column(name=name, kind="categorical", categories=chosen.kept, other=bool(chosen.rare))


def _ordinal(
    name: str, column: Any, options: TableOptions, missing: MissingValues, row_name: RowName
) -> Column:
    cells = to_cells(column, missing)
    known = merged(
        Cells(np.arange(len(options.ordinal[name]), dtype=np.int32), options.ordinal[name]),
        ignore_case=options.merge_spellings,
    )
    if len(known.cells.values) < len(options.ordinal[name]):
        raise RequestError(f'ordinal names a category of "{name}" twice.')
    own = merged(cells, ignore_case=options.merge_spellings)
    key = same_spelling if options.merge_spellings else exact_spelling
    keys = {key(text) for text in options.ordinal[name]}
    for code, text in enumerate(own.cells.values):
        if key(text) not in keys:
            order = "<".join([*options.ordinal[name], text])
            raise DataError(
                f'column "{name}" should hold {", ".join(options.ordinal[name])}; '
                f'{row_name(own.cells.first(code))} has "{text}". Correct it, treat it as missing '
                f"with {fix('na', text)}, or add it where it belongs in the order, such as "
                f"`--ordinal '{name}={order}'`."
            )
    return Column(name=name, kind="ordinal", categories=options.ordinal[name])


def _date(
    name: str,
    column: Any,
    options: TableOptions,
    missing: MissingValues,
    reference: str | None,
    row_name: RowName,
) -> Column:
    written = _format(name, column, options, missing, row_name)
    parts = options.dates[name]
    return Column(
        name=name,
        kind="date",
        parts=parts,
        format=written,
        reference=reference if "age" in parts else None,
    )


def _format(
    name: str, column: Any, options: TableOptions, missing: MissingValues, row_name: RowName
) -> str | None:
    """Find the format of dates that are text; None for dates and ISO 8601."""
    if is_temporal(column) or options.date_format is not None:
        return None if is_temporal(column) else options.date_format
    cells = to_cells(column, missing)
    fitting = date_formats(cells) or (
        ["%Y%m%d"] if cells.values and all(len(text) == 8 for text in cells.values) else []
    )
    for year in ("%Y", "%y"):
        ways = f"%d/%m/{year}", f"%m/%d/{year}"
        if {*ways} <= {*fitting}:
            raise DataError(
                f'column "{name}" holds dates such as "{cells.values[0]}", which may have the day '
                f"or the month first. Say it with {fix('date_format', ways[0])} or "
                f"{fix('date_format', ways[1])}."
            )
    if not fitting:
        wrong = next((c for c in range(len(cells.values)) if not date_formats(_only(cells, c))), 0)
        example = cells.values[wrong] if cells.values else ""
        place = row_name(cells.first(wrong)) if cells.values else "every row"
        is_one = any(date_formats(_only(cells, code)) for code in range(len(cells.values)))
        first = (
            f"Treat it as missing with {fix('na', example)}"
            if is_one
            else f"Leave the column out with {fix('drop', name)}"
        )
        raise DataError(
            f'column "{name}" should hold dates; {place} has "{example}". {first}, or say how '
            f"dates are written with {fix('date_format', '%d.%m.%Y')}."
        )
    return None if fitting[0] == "%Y-%m-%d" else fitting[0]


def _only(cells: Cells, code: int) -> Cells:
    return Cells(np.zeros(1, np.int32), (cells.values[code],))


def _reference(
    table: Any, options: TableOptions, missing: MissingValues, row_name: RowName
) -> str | None:
    """Return the day at which ages are measured."""
    if options.reference_date is not None:
        try:
            return date.fromisoformat(options.reference_date).isoformat()
        except ValueError:
            raise RequestError(
                "reference_date expects a date such as 2024-12-31, got "
                f'"{options.reference_date}".',
                option="reference_date",
            ) from None
    latest = []
    for name in options.dates:
        column = table[name]
        written = _format(name, column, options, missing, row_name)
        days = days_of(column, missing, written)[0]
        latest += [] if np.isnan(days).all() else [float(np.nanmax(days))]
    return (EPOCH + timedelta(days=max(latest))).isoformat() if latest else None


def _note_text(name: str, cells: Cells, found: Found, row_name: RowName, decimal: str) -> None:
    """Note a text column, or refuse it at once if it holds numbers or dates and a few texts."""
    if not cells.values:
        raise DataError(
            f'column "{name}" has no value in any row. Leave it out with {fix("drop", name)}.'
        )
    numbers, wrong = numbers_of(cells, decimal)
    if len(wrong) == len(numbers) and all(_is_comma_number(text) for text in cells.values):
        raise DataError(
            f'column "{name}" holds numbers with a comma ("{cells.values[0]}" in '
            f"{row_name(cells.first(0))}). Read it as a decimal comma with {fix('decimal', ',')}, "
            f"or leave the column out with {fix('drop', name)}."
        )
    other = other_mark(decimal)
    if wrong and not numbers_of(cells, other)[1]:
        text = cells.values[wrong[0]]
        raise DataError(
            f'column "{name}" holds numbers with {MARKS[decimal]} between thousands ("{text}" in '
            f"{row_name(cells.first(wrong[0]))}), and the decimal separator is {MARKS[decimal]} "
            f"elsewhere. Name another one with {fix('decimal', other)}, or leave the column out "
            f"with {fix('drop', name)}."
        )
    _refuse_units(name, cells, decimal, row_name)
    _refuse_some(name, "numbers", cells, wrong, row_name)
    example = f'"{cells.values[0]}" in {row_name(cells.first(0))}'
    if date_formats(cells):
        found.dates.append((name, example))
        return
    _refuse_mixed_dates(name, cells, row_name)
    found.texts.append((name, example))
    if len(cells.values) > max(MANY_CATEGORIES, cells.counts().sum() / 2):
        found.various.append(name)


def _refuse_some(name: str, what: str, cells: Cells, wrong: list[int], row_name: RowName) -> None:
    """Refuse a column that holds numbers (or dates), except in a few rows."""
    counts = cells.counts()
    rows, right = int(counts[wrong].sum()), len(cells.values) - len(wrong)
    few_rows = rows <= MOSTLY * counts.sum() and right > 0
    few_texts = right >= 10 and len(wrong) <= right / 10
    if not wrong or not (few_rows or few_texts):
        return
    texts = [cells.values[code] for code in wrong]
    found = (
        f'column "{name}" holds {what}, except in {plural(rows, "row")}: '
        f'{row_name(cells.first(wrong[0]))} has "{texts[0]}".'
    )
    if len(texts) > MANY_TEXTS:
        raise DataError(
            f"{found} Leave the column out with {fix('drop', name)}, or correct its "
            f"{len(texts)} texts in the table."
        )
    raise DataError(
        f"{found} Treat it as missing with {fix('na', *texts)}, or leave the column out with "
        f"{fix('drop', name)}."
    )


def _refuse_units(name: str, cells: Cells, decimal: str, row_name: RowName) -> None:
    """Refuse numbers with different units, unless so many that they are names."""
    found: dict[str, int] = {}
    for code, text in enumerate(cells.values):
        read = with_unit(text, decimal)
        if read is None:
            return
        found.setdefault(read.unit, code)
    units = [unit for unit in found if unit]
    if len(units) < 2 or len(units) > max(2, len(cells.values) / 10):
        return
    one, two = (
        f'"{cells.values[found[unit]]}" in {row_name(cells.first(found[unit]))}'
        for unit in units[:2]
    )
    raise DataError(
        f'column "{name}" holds numbers in different units ({one}, {two}). Leave the column out '
        f"with {fix('drop', name)}, or convert it to one unit in the table."
    )


def _refuse_mixed_dates(name: str, cells: Cells, row_name: RowName) -> None:
    """Refuse dates with a few other texts, and dates in several formats."""
    kinds = [date_formats(_only(cells, code)) for code in range(len(cells.values))]
    known = [f for fitting in kinds for f in fitting]
    if not known:
        return
    usual = max(dict.fromkeys(known), key=known.count)
    wrong = [code for code, fitting in enumerate(kinds) if usual not in fitting]
    others = [code for code in wrong if kinds[code]]
    if len(others) < len(wrong):
        _refuse_some(name, "dates", cells, wrong, row_name)
        return
    first = next(code for code, fitting in enumerate(kinds) if usual in fitting)
    raise DataError(
        f'column "{name}" holds dates in several formats ("{cells.values[first]}" in '
        f'{row_name(cells.first(first))}, "{cells.values[wrong[0]]}" in '
        f"{row_name(cells.first(wrong[0]))}). Leave the column out with {fix('drop', name)}, or "
        "write all dates in one format in the table."
    )


def _is_comma_number(text: str) -> bool:
    return numbers_of(Cells(np.zeros(1, np.int32), (text,)), ",")[1] == [] and "," in text


def _refuse_undecided(found: Found) -> None:
    if found.dates:
        names = [name for name, _ in found.dates]
        raise DataError(
            f"{_columns(names)} dates ({found.dates[0][1]}). Take year and day of year from them "
            f"with {fix('dates', *names)}, an age with {fix('dates', f'{names[0]}=age')}, or leave "
            f"them out with {fix('drop', *names)}."
        )
    if found.texts:
        names = [name for name, _ in found.texts]
        if found.various:
            various = found.various
            raise DataError(
                f"{_columns(various)} text that hardly repeats "
                f"({dict(found.texts)[various[0]]}). Leave "
                f"{'it' if len(various) == 1 else 'them'} out with {fix('drop', *various)}, or "
                f"make an input of each text with {fix('categorical', *various)}."
            )
        raise DataError(
            f"{_columns(names)} text ({found.texts[0][1]}). Make an input of each category with "
            f"{fix('categorical', *names)}, or leave {'it' if len(names) == 1 else 'them'} out "
            f"with {fix('drop', *names)}."
        )


def _columns(names: list[str]) -> str:
    if len(names) == 1:
        return f'column "{names[0]}" holds'
    listed = ", ".join(f'"{name}"' for name in names[:-1])
    return f'columns {listed} and "{names[-1]}" hold'
