"""Table files: text with any delimiter and encoding, Parquet, Arrow and Excel."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from motet._core.real_paths import did_you_mean
from motet.data._tables.arrow_tables import read_parquet, with_plain_text
from motet.data._tables.contents import KNOWN, refuse_archive, stem_of
from motet.data._tables.opened import HowToRead, Opened, cleaned
from motet.data._tables.text_files import read_text_file
from motet.errors import DataError, RequestError, one_line

# First bytes; a file of Feather's first version starts with FEA1.
MAGIC = {
    **dict.fromkeys((".parquet", ".pq"), (b"PAR1", b"PARE")),
    **dict.fromkeys((".feather", ".arrow"), (b"ARROW1", b"FEA1")),
    **dict.fromkeys((".xlsx", ".xlsm"), (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")),
}


def read_file(path: Path, how: HowToRead) -> Opened:
    """Read one table file of any known form."""
    if path.is_dir():
        pattern = shlex.quote(str(path / "*.csv"))
        raise RequestError(
            f"{path} is a directory; expected a {KNOWN} file. Give the files in it, one for each "
            f"client: `--table {pattern}`."
        )
    if not path.is_file():
        raise RequestError(f"there is no table at {path}.{did_you_mean(path)}", option="table")
    suffix = path.suffix.lower()
    with path.open("rb") as file:
        start = file.read(8)
    if start.startswith(b"PK\x03\x04"):
        refuse_archive(path)
    magic = MAGIC.get(suffix)
    if magic is not None and not start.startswith(magic):
        raise DataError(
            f"{path} is named like a {suffix} file, but does not start like one. If it is text, "
            f"rename it to {stem_of(path)}.csv; otherwise it is damaged: copy it again."
        )
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
        raise DataError(
            f"{path} cannot be read as a {what} file: {one_line(error).rstrip('.')}. It is damaged "
            "or incomplete; copy it again."
        ) from None
    return Opened(table, stem_of(path), lambda row: f"row {row + 1}", format=what)


def _excel(path: Path, how: HowToRead) -> Opened:
    from motet.data._tables.excel import read_excel

    table, first, remarks = read_excel(path, how.sheet, how.skip_rows, how.columns)
    return cleaned(
        Opened(table, stem_of(path), lambda row: f"row {row + first}", remarks, "Excel"), how
    )
