"""Repairs of text files whose meaning is clear although they are not tables in the strict sense."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from motet._core.text import plural
from motet.data._tables.cells import is_text, plain, tidy
from motet.data._tables.lines import Lines
from motet.data._tables.sniffing import rows_of

FEW_ZEROS = 0.05  # share of zero bytes that a damaged text file may have


class Repaired(NamedTuple):
    """Bytes of a text file after repairs, and what was repaired."""

    contents: memoryview
    remarks: tuple[str, ...] = ()


def repaired(contents: memoryview, sample: str, delimiter: str, *, wide: bool) -> Repaired:
    """Repair bytes that pyarrow would misread.

    Args:
        contents: The file.
        sample: Its first lines, decoded.
        delimiter: Between two cells.
        wide: Whether characters have two bytes or more; then zeros are part of them.
    """
    if wide:
        return Repaired(contents)
    remarks = []
    if b"\0" in bytes(contents[: 1 << 16]):
        contents = memoryview(bytes(contents).replace(b"\0", b""))
        remarks.append("zero bytes in the file were left out; it may be damaged.")
    mark = re.escape(delimiter).encode()
    first = sample.lstrip("\r\n").partition("\n")[0]
    if delimiter == " " and re.search("  |^ | $", first.strip("\r")):
        bare = re.sub(rb" *(\r?\n) *", rb"\1", bytes(contents)).strip(b" ")
        contents = memoryview(re.sub(rb" {2,}", b" ", bare))
        remarks.append("several spaces between cells count as one.")
    elif re.search(rf'{re.escape(delimiter)} +"', first):
        # Spaces between delimiter and quote: the quotes would be part of the text.
        contents = memoryview(re.sub(mark + rb' +"', delimiter.encode() + b'"', bytes(contents)))
    if all(re.fullmatch("'[^']*'", cell) for cell in first.strip("\r").split(delimiter)):
        # Only where a cell starts or ends: "patient's" stays as it is.
        data = re.sub(rb"(^|\n|" + mark + rb")'", rb'\1"', bytes(contents))
        contents = memoryview(re.sub(rb"'(\r?\n|$|" + mark + rb")", rb'"\1', data))
        remarks.append("cells are written in single quotes, which were left out.")
    return Repaired(contents, tuple(remarks))


def other_format(start: bytes) -> str | None:
    """Name the format of a file that is text, but no table."""
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not text:
        return "empty"
    if text.startswith(b"%PDF-"):
        return "a PDF document"
    if text.startswith(b"{\\rtf"):
        return "an RTF document"
    if re.match(rb"<(!doctype|html|\?xml|table)", text, re.IGNORECASE):
        return "HTML or XML"
    return "JSON" if re.match(rb'\[\s*[{\[]|\{\s*"', text) else None


def is_damaged_text(start: bytes) -> bool:
    """Tell whether bytes are text with a few zeros, rather than something else."""
    return start.count(0) <= max(1, FEW_ZEROS * len(start)) and not any(
        byte < 9 for byte in start if byte
    )


def header_for(lines: Lines) -> tuple[tuple[str, ...], str] | None:
    """Find column names for a file whose header has more or fewer cells than its rows.

    Rows may end with delimiters and the header not, or the header and not the rows; and R leaves
    the name of the first column out if it holds the names of rows.

    Returns:
        The names and a remark; None if it is something else.
    """
    header, rows = lines.first_rows(200)
    if not rows or len({len(row) for row in rows}) > 1:
        return None
    width, more = len(rows[0]), len(header) - len(rows[0])
    if more > 0 and not any(cell.strip() for cell in header[width:]):
        return tuple(header[:width]), "the header ends with a delimiter, other rows do not."
    if more < 0 and not any(cell.strip() for row in rows for cell in row[len(header) :]):
        return (*header, *[""] * -more), "rows end with a delimiter, the header does not."
    if len(header) == width - 1 and len({row[0] for row in rows}) == len(rows):
        return ("", *header), "the first column has no name; it is taken for names of rows."
    return None


def clear_rows(table: Any, *, only_last: bool = False) -> tuple[np.ndarray | None, list[str]]:
    """Find rows that are data: not empty, and not the header once more; None keeps all.

    Args:
        table: A `pyarrow.Table`.
        only_last: Whether empty rows are left out at the end only.
    """
    from pyarrow import compute

    rows = len(table)
    if not rows or not table.num_columns:
        return None, []
    empty = np.ones(rows, bool)
    for column in table.columns:
        if column.null_count == 0:
            empty[:] = False
            break
        empty &= np.asarray(plain(column).is_null())
    if only_last:
        empty[: rows - int((~empty[::-1]).argmax())] = False
    repeated = np.zeros(rows, bool)
    if all(is_text(column) for column in table.columns):
        repeated[:] = True
        for name, column in zip(table.column_names, table.columns, strict=True):
            same = compute.equal(compute.utf8_trim_whitespace(_texts(column)), tidy(name))
            repeated &= np.asarray(compute.coalesce(plain(same), False))
            if not repeated.any():
                break
    remarks = []
    if empty.any():
        remarks.append(f"{plural(int(empty.sum()), 'empty row')} left out.")
    if repeated.any():
        times = int(repeated.sum())
        remarks.append(f"the header is repeated in {plural(times, 'row')}; left out.")
    drop = empty | repeated
    return (np.flatnonzero(~drop) if drop.any() else None), remarks


def _texts(column: Any) -> Any:
    from pyarrow import string

    return plain(column).cast(string())


def resolved(names: Sequence[str], sample: str, delimiter: str) -> tuple[str, ...]:
    """Find columns in the header of a text file, although case or spaces differ."""
    header = next(iter(rows_of(sample, delimiter)), [])
    keys = {tidy(name).casefold() for name in names}
    return (*names, *(cell for cell in header if tidy(cell.strip('"')).casefold() in keys))
