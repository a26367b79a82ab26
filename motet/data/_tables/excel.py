"""Sheets of Excel files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from motet.data._tables.fixes import fix
from motet.errors import CapabilityError, DataError, RequestError, nearest, one_line

Cells = list[list[Any]]
TITLES = 30  # rows in which a header is looked for
FILLED = 0.8  # share of a row's usual cells that a header has


class Sheet(NamedTuple):
    """A table in a sheet.

    Attributes:
        table: A `pyarrow.Table`.
        first: Row of the sheet in which the first row of data is.
        remarks: What was left out.
    """

    table: Any
    first: int
    remarks: tuple[str, ...]


def read_excel(
    path: Path, sheet: str | None, skip_rows: int, columns: Sequence[str] | None
) -> Sheet:
    """Read a sheet; the first full row is the header unless columns are named.

    Without a name, it is the first sheet that holds a table.
    """
    book = _open(path)
    try:
        if sheet is not None and sheet not in book.sheetnames:
            raise RequestError(
                f'{path.name} has no sheet "{sheet}"; {nearest(sheet, book.sheetnames)}'
            )
        found = [sheet] if sheet is not None else [one.title for one in book.worksheets]
        for name in found:
            rows = [list(row) for row in book[name].iter_rows(skip_rows + 1, values_only=True)]
            table = _table_in(rows, skip_rows, columns)
            if table is not None:
                others = [other for other in book.sheetnames if other != name]
                return table._replace(remarks=(*_on_sheets(path, sheet, name, others), *table[2]))
    finally:
        book.close()
    raise DataError(f"{path} has no rows. Expected a header and one row per example.")


def _open(path: Path) -> Any:
    try:
        import openpyxl
    except ModuleNotFoundError:
        raise CapabilityError(
            f"{path.name} is an Excel file, which needs openpyxl: "
            'pip install "motet[excel]", or save the file as .csv.'
        ) from None
    try:
        return openpyxl.load_workbook(path, read_only=True, data_only=True)
    except Exception as error:  # a damaged zip or XML file fails in many ways
        raise DataError(
            f"{path} cannot be read as an Excel file: {one_line(error).rstrip('.')}. It is damaged "
            "or has a password; copy it again, or save it as .csv."
        ) from None


def _on_sheets(path: Path, asked: str | None, name: str, others: list[str]) -> list[str]:
    if asked is not None or not others:
        return []
    return [f'sheet "{name}" of {path.name} was read; for another use {fix("sheet", others[0])}.']


def _table_in(rows: Cells, skipped: int, columns: Sequence[str] | None) -> Sheet | None:
    """Find the table among rows: without empty margins, and without titles above the header."""
    width = max((len(row) for row in rows), default=0)
    rows = [[*row, *[None] * (width - len(row))] for row in rows]
    used = [place for place in range(width) if any(row[place] is not None for row in rows)]
    while rows and _filled(rows[-1]) == 0:
        rows.pop()
    titles: int | None
    header: list[Any]
    if columns:
        titles = next((n for n, row in enumerate(rows) if _filled(row)), 0)
        header, data = list(columns), rows[titles:]
    else:
        titles = _header_row(rows)
        header, data = ([], []) if titles is None else (rows[titles], rows[titles + 1 :])
        # Columns between the first and the last one that is used stay: they may be without values.
        span = slice(used[0], used[-1] + 1) if used else slice(0, 0)
        header, data = header[span], [row[span] for row in data]
    if titles is None or not header or not data or (len(header) < 2 and len(rows) < 3):
        return None
    above: list[Any] = [cell for row in rows[:titles] for cell in row if cell is not None]
    remarks = [f'rows above the header were left out, such as "{cell}".' for cell in above[:1]]
    names = ["" if name is None else str(name) for name in header]
    return Sheet(_table(names, data), skipped + titles + (1 if columns else 2), tuple(remarks))


def _filled(row: list[Any]) -> int:
    return sum(cell is not None for cell in row)


def _header_row(rows: Cells) -> int | None:
    """Find the first row with about as many cells as rows usually have."""
    widths = Counter(count for row in rows if (count := _filled(row)))
    if not widths:
        return None
    usual = widths.most_common(1)[0][0]
    full = [n for n, row in enumerate(rows[:TITLES]) if _filled(row) >= FILLED * usual]
    return full[0] if full else None


def _table(header: list[str], rows: Cells) -> Any:
    import pyarrow

    columns = [_column([row[place] for row in rows]) for place in range(len(header))]
    return pyarrow.Table.from_arrays(columns, names=header)


def _column(values: list[Any]) -> Any:
    import pyarrow

    try:
        return pyarrow.array(values)
    except (pyarrow.ArrowException, TypeError, ValueError):
        # Numbers and text side by side, as in a column of numbers with "n/a".
        return pyarrow.array([None if value is None else str(value) for value in values])
