"""Options that say how a table file is written, for training and for rows to predict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from motet.errors import RequestError

WORDS = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "space": " "}


def checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """Check encoding, delimiter, decimal, sheet, skip_rows, columns and bad_rows.

    Args:
        given: The options; those that are absent keep their default, which detects.

    Returns:
        Fields of `HowToRead`.
    """
    bad_rows, decimal = given.get("bad_rows", "error"), given.get("decimal")
    skip_rows = given.get("skip_rows", 0)
    if bad_rows not in ("error", "skip"):
        raise RequestError(
            f'bad_rows must be "error" or "skip", got {bad_rows!r}.', option="bad_rows"
        )
    if decimal not in (None, ".", ","):
        raise RequestError(f'decimal must be "." or ",", got {decimal!r}.', option="decimal")
    if skip_rows < 0:
        raise RequestError(f"skip_rows must be 0 or more; got {skip_rows}.", option="skip_rows")
    return {
        "encoding": given.get("encoding"),
        "delimiter": _delimiter(given.get("delimiter")),
        "decimal": decimal,
        "sheet": given.get("sheet"),
        "skip_rows": skip_rows,
        "columns": _header(given.get("columns")),
        "bad_rows": bad_rows,
    }


def listed(names: Sequence[str] | str) -> tuple[str, ...]:
    """Accept a single name where a list is expected."""
    return (str(names),) if isinstance(names, str | int | float) else tuple(map(str, names))


def _header(columns: Sequence[str] | str | None) -> tuple[str, ...] | None:
    """Read column names; the command line gives them as one text."""
    if columns is None:
        return None
    names = listed(columns)
    return tuple(names[0].split(",")) if len(names) == 1 else names


def _delimiter(text: str | None) -> str | None:
    """Read a delimiter, which may also be written as a word."""
    if text is None:
        return None
    mark = WORDS.get(text, text)
    if len(mark) != 1 or not mark.isascii() or mark in '"\r\n\0':
        raise RequestError(
            f'delimiter must be one ASCII character, or "tab"; got {text!r}.', option="delimiter"
        )
    return mark
