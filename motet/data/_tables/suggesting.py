"""Options that a table needs before it can be used, found by looking at its columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from motet._core.text import plural
from motet.data._tables.categories import MANY_CATEGORIES
from motet.data._tables.cells import (
    Cells,
    MissingValues,
    date_formats,
    is_numeric,
    is_temporal,
    numbers_of,
    to_cells,
)
from motet.data._tables.inspection import FEWEST_ROWS
from motet.data._tables.kinds import MOSTLY
from motet.data._tables.numbers import is_yes_no
from motet.data._tables.options import NO_FILLING, TableOptions
from motet.data._tables.spellings import merged

MOST_TEXTS = 10  # that may stand for missing values in a column of numbers


class Suggestion(NamedTuple):
    """An option of `from_table`, what it should be, and why.

    Attributes:
        option: Its name.
        value: A column or text that belongs into a list, or the whole value.
        reason: What was found, for people.
    """

    option: str
    value: Any
    reason: str


def suggest(
    table: Any, chosen: Sequence[str], client: str, options: TableOptions, decimal: str
) -> list[Suggestion]:
    """Propose an option for each input column that needs one, and for missing values."""
    named = {*options.categorical, *options.ordinal, *options.dates}
    missing = MissingValues(options.na)
    found: list[Suggestion] = []
    for name in chosen:
        if name not in named:
            found += _column(name, table[name], options, missing, decimal)
    dropped = {each.value for each in found if each.option == "drop"}
    kept = [name for name in chosen if name not in dropped]
    given_up = {each.value for each in found if each.option == "na"}
    missing = MissingValues([*options.na, *given_up])
    gaps = {name: count for name in kept if (count := _gaps(table[name], missing))}
    if gaps and options.filling == NO_FILLING:
        most = max(gaps, key=lambda name: gaps[name])
        reason = f"{plural(len(gaps), 'column')} with missing values; {most} most ({gaps[most]})"
        found.append(Suggestion("missing", "median", reason))
    for option, column in (
        *(("drop_missing_target", name) for name in options.targets),
        ("drop_missing_client", client),
    ):
        count = _gaps(table[column], missing)
        if count and not getattr(options, option):
            reason = f'{plural(count, "row")} without "{column}"'
            found.append(Suggestion(option, True, reason))  # noqa: FBT003  # the value of a switch
    if options.standardize == "none":
        reason = "columns have different scales; training needs similar ones"
        found.append(Suggestion("standardize", "federation", reason))
    return found


def _column(
    name: str, column: Any, options: TableOptions, missing: MissingValues, decimal: str
) -> Iterator[Suggestion]:
    if is_temporal(column):
        yield Suggestion("dates", name, f"{name} holds dates")
        return
    cells = to_cells(column, missing)
    if not cells.values:
        yield Suggestion("drop", name, f"{name} has no value in any row")
    elif _is_id(column, cells):
        yield Suggestion("drop", name, f"{name} is different in every row, like an id")
    elif not is_numeric(column):
        yield from _text(name, cells, options, decimal)


def _text(name: str, cells: Cells, options: TableOptions, decimal: str) -> Iterator[Suggestion]:
    """Propose what to do with a column of text, which may hold numbers, dates or categories."""
    numbers, wrong = numbers_of(cells, decimal)
    counts = cells.counts()
    if not wrong or is_yes_no(cells.values):
        return
    if len(wrong) < len(numbers) and counts[wrong].sum() <= MOSTLY * counts.sum():
        texts = [cells.values[code] for code in wrong]
        if len(texts) > MOST_TEXTS:
            yield Suggestion("drop", name, f"{name} mixes numbers and text, such as {texts[0]}")
        for text in texts if len(texts) <= MOST_TEXTS else []:
            yield Suggestion("na", text, f"{name} holds numbers, but also {text}")
        return
    formats = date_formats(cells)
    unclear = any({f"%d/%m/{y}", f"%m/%d/{y}"} <= set(formats) for y in ("%Y", "%y"))
    if unclear and options.date_format is None:
        yield Suggestion(
            "drop", name, f"{name} holds dates with day or month first; see date_format"
        )
    elif formats:
        yield Suggestion("dates", name, f"{name} holds dates")
    elif len(merged(cells, ignore_case=options.merge_spellings).cells.values) > MANY_CATEGORIES:
        yield Suggestion("drop", name, f"{name} is text with more than {MANY_CATEGORIES} values")
    else:
        yield Suggestion("categorical", name, f"{name} holds text, such as {cells.values[0]}")


def _is_id(column: Any, cells: Cells) -> bool:
    from pyarrow import types

    rows = len(column)
    is_measure = types.is_floating(column.type) or types.is_decimal(column.type)
    unique = len(cells.values) == rows and rows >= FEWEST_ROWS
    return unique and not is_measure and not date_formats(cells) and not _are_measures(cells)


def _are_measures(cells: Cells) -> bool:
    """Tell whether texts are numbers with a fraction, which differ in every row by nature."""
    return (
        any(mark in text for text in cells.values for mark in ".,")
        and not numbers_of(cells, ".")[1]
    )


def _gaps(column: Any, missing: MissingValues) -> int:
    return int((to_cells(column, missing).codes < 0).sum())
