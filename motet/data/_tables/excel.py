"""Sheets of Excel files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from motet.errors import CapabilityError, DataError, RequestError, nearest


def read_excel(path: Path, sheet: str | None, skip_rows: int, columns: Sequence[str] | None) -> Any:
    """Read a sheet as a `pyarrow.Table`; the first row is the header unless columns are named."""
    try:
        import openpyxl
    except ModuleNotFoundError:
        raise CapabilityError(
            f"{path.name} is an Excel file, which needs openpyxl: "
            'pip install "motet[excel]", or save the file as .csv.'
        ) from None
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    except Exception as error:  # a damaged zip or XML file fails in many ways
        raise DataError(f"{path} cannot be read as an Excel file: {error}") from None
    try:
        if sheet is not None and sheet not in book.sheetnames:
            raise RequestError(
                f'{path.name} has no sheet "{sheet}"; {nearest(sheet, book.sheetnames)}'
            )
        found = book[sheet] if sheet is not None else book.worksheets[0]
        rows = [list(row) for row in found.iter_rows(min_row=skip_rows + 1, values_only=True)]
    finally:
        book.close()
    header = list(columns) if columns else rows.pop(0) if rows else []
    while (
        header
        and header[-1] is None
        and all(row[len(header) - 1 :] in ([], [None]) for row in rows)
    ):
        header.pop()
    while rows and all(cell is None for cell in rows[-1]):
        rows.pop()
    if not header or not rows:
        raise DataError(f"{path} has no rows. Expected a header and one row per example.")
    return _table(["" if name is None else str(name) for name in header], rows)


def _table(header: list[str], rows: list[list[Any]]) -> Any:
    import pyarrow

    columns = [
        _column([row[place] if place < len(row) else None for row in rows])
        for place in range(len(header))
    ]
    return pyarrow.Table.from_arrays(columns, names=header)


def _column(values: list[Any]) -> Any:
    import pyarrow

    try:
        return pyarrow.array(values)
    except (pyarrow.ArrowException, TypeError, ValueError):
        # Numbers and text side by side, as in a column of numbers with "n/a".
        return pyarrow.array([None if value is None else str(value) for value in values])
