"""Table files: text with any delimiter and encoding, Parquet, Arrow and Excel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from motet._core.text import plural
from motet.data._schema import Schema
from motet.data._tables.arrow_tables import read_parquet, with_plain_text
from motet.data._tables.cells import MissingValues, RowName
from motet.data._tables.contents import EmptyTableError, bytes_of, source_of
from motet.data._tables.fixes import fix
from motet.data._tables.lines import Lines
from motet.data._tables.numeric import Numeric, numeric_text
from motet.data._tables.quotes import has_line_breaks, with_closed_quotes
from motet.data._tables.repairs import (
    clear_rows,
    header_for,
    is_damaged_text,
    other_format,
    repaired,
    resolved,
)
from motet.data._tables.sniffing import (
    Dialect,
    check_encoding,
    decoded_sample,
    detect_encoding,
    is_utf8,
    marked_encoding,
    sniff,
    special_word,
)
from motet.errors import DataError, RequestError, one_line

ZIPPED = (".gz", ".bz2", ".zst", ".lz4", ".br")
KNOWN = ".csv, .tsv, .txt (also .gz), .parquet, .feather or .xlsx"
NULLS = ("", "?", "NA", "N/A", "n/a", "na", "NaN", "nan", "NAN", "-nan", "null", "NULL", "Null")
MORE_NULLS = ("#N/A", "#NA", "<NA>", "NaT", "#n/a", "N/a")

BLOCK = 1 << 22  # bytes that are parsed at a time; with fewer, each has its own dictionaries


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
        )

    def numeric(self, table: Any, decimal: str | None = None) -> Numeric:
        """Turn text columns that hold numbers only into columns of numbers."""
        return numeric_text(
            table,
            MissingValues(self.na),
            decimal or self.decimal or ".",
            keep=self.as_text,
            no_units=() if self.target is None else (self.target,),
            units=self.units,
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
    return _text(path, how)


def stem_of(path: Path) -> str:
    """Return a file's name without its endings: "zurich" for zurich.csv.gz."""
    name = path.name
    for ending in ZIPPED:
        name = name.removesuffix(ending)
    return Path(name).stem


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


def _text(path: Path, how: HowToRead) -> Opened:
    contents = bytes_of(path)
    start = bytes(contents[:2000])
    if start.startswith((b"PK\x03\x04", b"PAR1", b"ARROW1", b"\xd0\xcf\x11\xe0")):
        ending = {b"PK": ".xlsx", b"PA": ".parquet", b"AR": ".feather"}.get(start[:2], ".xls")
        raise RequestError(
            f'"{path.name}" is named like a text file, but its contents are those of a {ending} '
            f"file. Rename it to {stem_of(path)}{ending}."
        )
    encoding = how.encoding or marked_encoding(start) or "utf-8"
    found = other_format(start) if encoding == "utf-8" else None
    if found == "empty" and len(contents) <= len(start):
        raise EmptyTableError(f"{path} is empty. Expected a header and one row per example.")
    if found not in (None, "empty"):
        raise DataError(f"{path} is {found}, not a table. Export it as CSV or Excel.")
    if encoding == "utf-8" and b"\0" in start and not is_damaged_text(start):
        raise DataError(f"{path} cannot be read as a table: it is not text. Expected {KNOWN}.")
    return _parsed(path, contents, encoding, how)


def _parsed(path: Path, contents: memoryview, encoding: str, how: HowToRead) -> Opened:
    """Parse text; a file that turns out not to be UTF-8 is parsed once more, in its encoding."""
    from pyarrow import types

    check_encoding(encoding)
    sample = decoded_sample(contents, encoding)
    dialect = sniff(sample, how.delimiter, how.decimal)
    contents, repairs = repaired(
        contents, sample, dialect.delimiter, wide=encoding.startswith(("utf-16", "utf-32"))
    )
    how = replace(
        how,
        skip_rows=how.skip_rows + dialect.skip,
        as_text=resolved(how.as_text, sample, dialect.delimiter),
    )
    lines = Lines(contents, encoding, dialect.delimiter, how.skip_rows, bool(how.columns))
    skipped: list[str] = []
    header = None if how.columns else _other_header(lines)
    if header is not None:
        repairs = (*repairs, header[1])
        lines = replace(lines, skip=lines.skip + 1, headless=True)
        how = replace(how, columns=header[0], skip_rows=how.skip_rows + 1)
    table, contents, closed = _read_closed(path, contents, encoding, dialect, how, lines, skipped)
    if table is None or any(types.is_binary(kind) for kind in table.schema.types):
        if how.encoding is not None:
            raise DataError(
                f"{path} is not {how.encoding} text. Leave the encoding out to detect it, or name "
                f"another, such as {fix('encoding', 'cp1252')}."
            )
        return _in_other_encoding(path, contents, how)
    lines = replace(lines, contents=contents)
    remarks = [f"{path.name}: {remark}" for remark in (*repairs, *closed)]
    remarks += [
        f"{plural(len(skipped), 'row')} of {path.name} with too many or too few cells skipped, "
        f'such as "{text[:60]}".'
        for text in skipped[:1]
    ]
    mark = {"\t": "tab", ",": "comma", ";": "semicolon", "|": "bar"}.get(
        dialect.delimiter, dialect.delimiter
    )
    shown = f"text, {encoding}, delimiter {mark}, decimal {dialect.decimal!r}"
    lines = replace(lines, rows=len(table) + len(skipped))
    return cleaned(
        Opened(table, stem_of(path), lines.name, tuple(remarks), shown, dialect.decimal), how
    )


def _read_closed(
    path: Path,
    contents: memoryview,
    encoding: str,
    dialect: Dialect,
    how: HowToRead,
    lines: Lines,
    skipped: list[str],
) -> tuple[Any, memoryview, tuple[str, ...]]:
    """Parse text; once more without its stray quotes, if a cell seems to have swallowed rows.

    Returns:
        The table, the text that was parsed, and remarks.
    """
    table, problem = None, None
    try:
        table = _read_csv(path, contents, encoding, dialect, how, lines, skipped)
        if table is None or not has_line_breaks(table):
            return table, contents, ()
    except EmptyTableError:
        raise
    except DataError as error:
        problem = error
    width = len(how.columns or lines.first_rows(0)[0])
    closed = with_closed_quotes(contents, encoding, dialect.delimiter, width)
    if closed is not None:
        contents, remark = closed
        lines = replace(lines, contents=contents)
        table = _read_csv(path, contents, encoding, dialect, how, lines, skipped)
        return table, contents, (remark,)
    if problem is not None:
        raise problem
    return table, contents, ()


def _other_header(lines: Lines) -> tuple[tuple[str, ...], str] | None:
    """Find another header, if the first two rows differ in width."""
    header, rows = lines.first_rows(1)
    return header_for(lines) if rows and len(header) != len(rows[0]) else None


def _in_other_encoding(path: Path, contents: memoryview, how: HowToRead) -> Opened:
    if is_utf8(contents):  # binary columns for another reason: nothing to detect
        raise DataError(f"{path} cannot be read as a table: it holds binary values.")
    encoding = detect_encoding(contents)
    opened = _parsed(path, contents, encoding, replace(how, encoding=encoding))
    line, word = special_word(contents, encoding)
    remark = (
        f'{path.name} is not UTF-8; it was read as {encoding}, such as "{word}" in row {line}. If '
        f"that is wrong, name the encoding: {fix('encoding', 'latin-1')}."
    )
    return replace(opened, remarks=(remark, *opened.remarks))


def _read_csv(
    path: Path,
    contents: memoryview,
    encoding: str,
    dialect: Dialect,
    how: HowToRead,
    lines: Lines,
    skipped: list[str],
) -> Any:
    """Parse text with pyarrow; None if it is not in this encoding."""
    import pyarrow
    from pyarrow import csv

    skips = how.bad_rows == "skip"
    if skips and encoding == "utf-8" and not is_utf8(contents):
        return None  # pyarrow cannot hand over a row in another encoding

    def skip(row: Any) -> str:
        skipped.append(row.text or "")
        return "skip"

    def parse(*, newlines: bool) -> Any:
        skipped.clear()
        return csv.read_csv(
            source_of(path, contents),
            read_options=csv.ReadOptions(
                encoding=encoding,
                skip_rows=how.skip_rows,
                column_names=how.columns,
                block_size=BLOCK,
            ),
            parse_options=csv.ParseOptions(
                delimiter=dialect.delimiter,
                newlines_in_values=newlines,
                invalid_row_handler=skip if skips else None,
            ),
            convert_options=csv.ConvertOptions(
                # An empty cell is a missing value in a text column too, not the text "".
                strings_can_be_null=True,
                null_values=[*NULLS, *MORE_NULLS, *how.na],
                decimal_point=dialect.decimal,
                column_types={
                    name: pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
                    for name in how.as_text
                },
            ),
        )

    try:
        try:
            table = parse(newlines=False)
        except pyarrow.ArrowInvalid:
            table = parse(newlines=True)  # cells with line breaks; slower, so only if needed
        _ = table.column_names  # fails here if the header is not UTF-8
    except (pyarrow.ArrowException, UnicodeDecodeError, OSError) as error:
        is_other = "UTF8" in str(error) or isinstance(error, UnicodeDecodeError)
        if is_other or (encoding == "utf-8" and not is_utf8(contents)):
            return None
        raise _unreadable(path, error, lines) from None
    pyarrow.default_memory_pool().release_unused()  # what parsing needed, a third of the peak
    return table


def _unreadable(path: Path, error: Exception, lines: Lines) -> DataError:
    if "Empty CSV file" in str(error):
        return EmptyTableError(f"{path} has no rows. Expected a header and one row per example.")
    bad = lines.first_uneven()
    if bad is None:
        names = " `columns` names another number of columns." if lines.headless else ""
        return DataError(f"{path} cannot be read as a table: {one_line(error)}.{names}")
    if bad.likely_header is not None:
        return DataError(
            f"{path} cannot be read as a table: row {bad.line} has {plural(bad.found, 'cell')}, "
            f"but most rows have {bad.expected}. If the header is in row {bad.likely_header}, skip "
            f"the lines before it with {fix('skip_rows', bad.likely_header - 1)}."
        )
    return DataError(
        f"{path} cannot be read as a table: row {bad.line} has {plural(bad.found, 'cell')}, "
        f'expected {bad.expected}: "{bad.text[:60]}". Correct it, or skip such rows with '
        f"{fix('bad_rows', 'skip')}."
    )
