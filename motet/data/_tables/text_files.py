"""Tables in text files, with any delimiter and encoding."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from motet._core.text import plural
from motet.data._tables.contents import KNOWN, EmptyTableError, bytes_of, source_of, stem_of
from motet.data._tables.fixes import fix
from motet.data._tables.lines import Lines
from motet.data._tables.opened import HowToRead, Opened, cleaned
from motet.data._tables.quotes import has_line_breaks, with_closed_quotes
from motet.data._tables.repairs import (
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

NULLS = ("", "?", "NA", "N/A", "n/a", "na", "NaN", "nan", "NAN", "-nan", "null", "NULL", "Null")
MORE_NULLS = ("#N/A", "#NA", "<NA>", "NaT", "#n/a", "N/a")

BLOCK = 1 << 22  # bytes that are parsed at a time; with fewer, each has its own dictionaries


def read_text_file(path: Path, how: HowToRead) -> Opened:
    """Read a text file in any encoding, also a compressed one."""
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
    dialect = sniff(sample, how.delimiter, how.decimal, how.likely_decimal or ".")
    contents, repairs = repaired(
        contents, sample, dialect.delimiter, wide=encoding.startswith(("utf-16", "utf-32"))
    )
    asked = how
    how = replace(
        how,
        skip_rows=how.skip_rows + dialect.skip,
        as_text=resolved(how.as_text, sample, dialect.delimiter),
    )
    lines = Lines(contents, encoding, dialect.delimiter, how.skip_rows, bool(how.columns))
    skipped: list[str] = []
    header = None if how.columns else _other_header(lines)
    if header is not None:
        if asked.encoding is None and encoding == "utf-8" and not is_utf8(contents):
            return _in_other_encoding(path, contents, asked)  # pyarrow does not see these names
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
        return _in_other_encoding(path, contents, asked)
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
