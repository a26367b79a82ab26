"""Quotes that are opened and never closed, which would swallow the rows after them."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from motet._core.text import listed, plural
from motet.data._tables.cells import is_text
from motet.data._tables.numbers import to_number

MOST_BYTES = 1 << 28  # of a file that is looked at line by line
FIRST_ROWS = 50  # that show which columns hold numbers


class Closed(NamedTuple):
    """A text without stray quotes, and the lines on which they were."""

    text: str
    lines: tuple[int, ...]


def with_closed_quotes(
    contents: memoryview, encoding: str, delimiter: str, width: int
) -> tuple[memoryview, str] | None:
    """Leave out quotes without an end, if one has swallowed rows.

    Returns:
        The repaired file and a remark; None if there is nothing to repair.
    """
    if len(contents) > MOST_BYTES:
        return None
    text = bytes(contents).decode(encoding, errors="surrogateescape")
    closed = without_stray_quotes(text, delimiter, width)
    if closed is None:
        return None
    remark = (
        f"{plural(len(closed.lines), 'quote')} without an end left out, in row "
        f"{listed([str(line) for line in closed.lines], most=5)}; the rows below would have been "
        "part of the cell."
    )
    return memoryview(closed.text.encode(encoding, errors="surrogateescape")), remark


def has_line_breaks(table: Any) -> bool:
    """Tell whether a cell of a table holds a line break."""
    from pyarrow import compute, types

    for column in table.columns:
        if not is_text(column):
            continue
        is_coded = types.is_dictionary(column.type)
        parts = [chunk.dictionary if is_coded else chunk for chunk in column.chunks]
        if any(compute.any(compute.match_substring(part, "\n")).as_py() for part in parts):
            return True
    return False


def without_stray_quotes(text: str, delimiter: str, width: int) -> Closed | None:
    """Leave out quotes that swallow whole rows; None if there are none.

    A cell may hold line breaks. But if a line within it has as many cells as the table, with
    numbers where the first rows have them, it is a row, and the quote before it was a mistake. So
    it was if the lines on which the quote starts and ends are both such rows.
    """
    lines = text.split("\n")
    numeric = _numeric_columns(lines, delimiter, width)
    is_row = partial(_is_row, delimiter=delimiter, width=width, numeric=numeric)
    stray: list[int] = []
    number = 0
    while numeric and number < len(lines):
        if lines[number].count('"') % 2 == 0:
            number += 1
            continue
        end = next((n for n in range(number + 1, len(lines)) if lines[n].count('"') % 2), None)
        inner = lines[number + 1 : end]
        bare = _without_last_quote(lines[number])
        ends = [bare, *([] if end is None else [_without_last_quote(lines[end])])]
        if any(map(is_row, inner)) or all(map(is_row, ends)):
            stray.append(number + 1)
            lines[number] = bare
            number += 1
        else:
            number = len(lines) if end is None else end + 1
    return Closed("\n".join(lines), tuple(stray)) if stray else None


def _without_last_quote(line: str) -> str:
    start, _, rest = line.rpartition('"')
    return start + rest


def _numeric_columns(lines: Sequence[str], delimiter: str, width: int) -> list[int]:
    rows = [_cells(line, delimiter) for line in lines[1:FIRST_ROWS]]
    whole = [row for row in rows if len(row) == width]
    return [n for n in range(width) if whole and all(_is_number(row[n]) for row in whole)]


def _is_row(line: str, delimiter: str, width: int, numeric: Sequence[int]) -> bool:
    cells = _cells(line, delimiter)
    return len(cells) == width and all(_is_number(cells[place]) for place in numeric)


def _cells(line: str, delimiter: str) -> list[str]:
    """Take a line apart; no cells if it has one that is too long, or a line break of its own."""
    try:
        return next(csv.reader([line.rstrip("\r")], delimiter=delimiter), [])
    except csv.Error:
        return []


def _is_number(text: str) -> bool:
    return any(to_number(text, decimal) is not None for decimal in ".,")
