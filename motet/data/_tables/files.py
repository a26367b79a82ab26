"""Table files: text with any delimiter and encoding, Parquet, Arrow and Excel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from motet.data._tables.arrow_tables import read_parquet, with_plain_text
from motet.data._tables.contents import KNOWN, stem_of
from motet.data._tables.opened import HowToRead, Opened, cleaned
from motet.data._tables.text_files import read_text_file
from motet.errors import DataError, RequestError


def read_file(path: Path, how: HowToRead) -> Opened:
    """Read one table file of any known form."""
    if not path.is_file():
        raise RequestError(f"there is no table at {path}.")
    suffix = path.suffix.lower()
    if suffix in (".parquet", ".pq"):
        return _arrow(path, read_parquet, "Parquet")
    if suffix in (".feather", ".arrow", ".ipc"):
        from pyarrow import feather

        return _arrow(path, feather.read_table, "Arrow")
    if suffix in (".xlsx", ".xlsm"):
        return _excel(path, how)
    if suffix in (".xls", ".ods", ".sav", ".dta", ".sas7bdat", ".rds", ".json", ".xml", ".zip"):
        raise RequestError(
            f'a table must be a {KNOWN} file, got "{path.name}". Save it as .csv or .xlsx.'
        )
    return read_text_file(path, how)


def _arrow(path: Path, read: Callable[[Path], Any], what: str) -> Opened:
    from pyarrow import ArrowException

    try:
        table = read(path)
        table.validate(full=True)  # names, text and offsets that would fail later, on use
        table = with_plain_text(table)
    except (ArrowException, OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as a table: {error}") from None
    return Opened(table, stem_of(path), lambda row: f"row {row + 1}", format=what)


def _excel(path: Path, how: HowToRead) -> Opened:
    from motet.data._tables.excel import read_excel

    table, first, remarks = read_excel(path, how.sheet, how.skip_rows, how.columns)
    return cleaned(
        Opened(table, stem_of(path), lambda row: f"row {row + first}", remarks, "Excel"), how
    )
