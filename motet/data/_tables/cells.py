"""Cells of a table: spellings, missing values, numbers and dates.

Everything works on the distinct values of a column, so that a million rows cost little more than
their distinct spellings.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motet.data._tables.numbers import read_numbers, to_number
from motet.errors import DataError

Codes = NDArray[np.int32]
Floats = NDArray[np.float64]
RowName = Callable[[int], str]

# Spellings of a missing value, compared without case and outer spaces. Codes such as -9 may be
# measurements, so they are missing only if the user says so.
USUAL_NA = ("", "?", "na", "n/a", "#n/a", "#na", "nan", "-nan", "null", "<na>", "nat")
FEW_CODES = 1000  # whole numbers below it are their own codes
_WHOLE = re.compile(r"([+-]?\d+)\.0+")
_SPACES = re.compile(r"\s+")
# Marks that come along when text is copied: zero width space, word joiner, byte order mark, soft
# hyphen, marks of direction.
_INVISIBLE = re.compile("[\u200b\u2060\ufeff\u00ad\u200e\u200f]")
DATE_FORMATS = (
    "%Y-%m-%d",
    "%d.%m.%Y",
    "%d/%m/%Y",
    "%m/%d/%Y",
    "%Y/%m/%d",
    "%d-%m-%Y",
    "%Y%m%d",
    "%d.%m.%y",
    "%d %b %Y",
    "%d-%b-%Y",
    "%b %d, %Y",
    "%d %B %Y",
    "%B %d, %Y",
    "%d/%m/%y",
    "%m/%d/%y",
    "%b-%d-%Y",
    "%d-%b-%y",
    "%Y.%m.%d",
    "%Y-%m",
)
# A time of day after a date.
_TIME = re.compile(r"[ T]\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?( ?[AaPp][Mm])?Z?$")


@dataclass(frozen=True)
class Cells:
    """A column as the distinct texts in it, and the number of the text in each row.

    Attributes:
        codes: Position in `values` for each row; -1 where the value is missing.
        values: Distinct texts, as they are spelled.
    """

    codes: Codes
    values: tuple[str, ...]

    def first(self, code: int) -> int:
        """Find the first row with a value."""
        return int((self.codes == code).argmax())

    def counts(self) -> NDArray[np.int64]:
        """Count the rows of each value."""
        return np.bincount(self.codes + 1, minlength=len(self.values) + 1)[1:]

    def look_up(self, table: Sequence[float] | Floats) -> Floats:
        """Replace each value by a number; NaN where it is missing."""
        return np.append(np.asarray(table, np.float64), np.nan)[self.codes]


def tidy(text: str) -> str:
    """Remove outer spaces, repeated spaces, invisible marks and differences in composition.

    >>> tidy("  New   York ")
    'New York'
    """
    if text.isascii():  # the usual case, and much faster
        return " ".join(text.split())
    return _SPACES.sub(" ", _INVISIBLE.sub("", unicodedata.normalize("NFC", text))).strip()


def same_spelling(text: str) -> str:
    """Make the key by which two spellings are the same: spaces, case and ".0" do not count.

    >>> same_spelling("CLEVELAND ") == same_spelling("cleveland"), same_spelling("3.0")
    (True, '3')
    """
    composed = text if text.isascii() else unicodedata.normalize("NFKC", text)
    return _without_point(tidy(composed).casefold())


def exact_spelling(text: str) -> str:
    """Make the key by which two spellings are the same if case matters."""
    return _without_point(tidy(text))


def _without_point(text: str) -> str:
    whole = _WHOLE.fullmatch(text) if text.endswith("0") else None
    return whole.group(1) if whole else text


class MissingValues:
    """Decides which cells are missing: the usual spellings and those that a user names."""

    def __init__(self, named: Sequence[str] = ()) -> None:
        self.named = tuple(named)
        self._keys = {*USUAL_NA, *(same_spelling(text) for text in named)}
        numbers = (to_number(text, ".") for text in named)
        self.numbers = tuple(number for number in numbers if number is not None)

    def __contains__(self, text: str) -> bool:
        return same_spelling(text) in self._keys


def plain(column: Any) -> Any:
    """Resolve dictionary columns to their values and chunks to one array."""
    import pyarrow

    if pyarrow.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return column.combine_chunks() if isinstance(column, pyarrow.ChunkedArray) else column


def is_text(column: Any) -> bool:
    """Tell whether a column holds text."""
    from pyarrow import types

    kind = column.type.value_type if types.is_dictionary(column.type) else column.type
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def is_numeric(column: Any) -> bool:
    """Tell whether a column holds numbers, booleans or nothing."""
    from pyarrow import types

    kind = column.type
    return bool(
        types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_boolean(kind)
        or types.is_decimal(kind)
        or types.is_null(kind)
    )


def is_opaque(column: Any) -> bool:
    """Tell whether a column holds lists, structures or bytes, which are not cells."""
    from pyarrow import types

    kind = column.type.value_type if types.is_dictionary(column.type) else column.type
    bytes_like = (types.is_binary, types.is_large_binary, types.is_fixed_size_binary)
    return bool(types.is_nested(kind) or any(check(kind) for check in bytes_like))


def is_temporal(column: Any) -> bool:
    """Tell whether a column holds dates or times of day on a date."""
    from pyarrow import types

    return bool(types.is_date(column.type) or types.is_timestamp(column.type))


def to_cells(column: Any, missing: MissingValues) -> Cells:
    """Read any column as text; whole numbers are spelled without a point."""
    import pyarrow
    from pyarrow import compute

    kept = column
    if is_opaque(column):
        raise DataError(f"a cell should hold a number, text or a date; got {column.type} values.")
    if not pyarrow.types.is_dictionary(column.type):
        column = plain(column)
        if pyarrow.types.is_floating(column.type):
            column = compute.if_else(compute.is_nan(column), None, column)
        kept = _small_codes(column) or column.dictionary_encode()
    kept = kept.combine_chunks() if isinstance(kept, pyarrow.ChunkedArray) else kept
    if isinstance(kept, pyarrow.ChunkedArray):  # no rows at all, or dictionaries that differ
        kept = kept.unify_dictionaries().combine_chunks()
    texts = ["" if value is None else _spelled(value) for value in kept.dictionary.to_pylist()]
    # Those of polars are unsigned, which have no -1; not safe, for what is below a null.
    places = kept.indices.cast(pyarrow.int32(), safe=False)
    places = places.fill_null(-1) if places.null_count else places
    codes = np.asarray(places.to_numpy(zero_copy_only=False), np.int32)
    # Frames may list categories that no row has.
    used = np.zeros(len(texts) + 1, bool)
    used[codes] = True
    texts = [text if there else "" for text, there in zip(texts, used[:-1].tolist(), strict=True)]
    return _without_missing(codes, texts, missing)


def _small_codes(column: Any) -> Any:
    """Encode small whole numbers, which need no search for equal ones; None if it is not worth it.

    Their dictionary may have numbers that are in no row.
    """
    import pyarrow
    from pyarrow import compute

    if not pyarrow.types.is_integer(column.type) or column.null_count or len(column) < FEW_CODES:
        return None
    least, most = compute.min_max(column).values()
    if least.as_py() < 0 or most.as_py() >= FEW_CODES:
        return None
    numbers = pyarrow.array(range(most.as_py() + 1))
    return pyarrow.DictionaryArray.from_arrays(column.cast(pyarrow.int32()), numbers)


def _spelled(value: Any) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return str(value)


def _without_missing(codes: Codes, texts: list[str], missing: MissingValues) -> Cells:
    """Give the distinct texts that are not missing a number, in order of appearance."""
    places: dict[str, int] = {}
    renumbered = [-1 if text in missing else places.setdefault(text, len(places)) for text in texts]
    if len(places) == len(texts):  # all different, none missing
        return Cells(codes, tuple(places))
    table = np.asarray([*renumbered, -1], np.int32)
    return Cells(table[codes], tuple(places))


def numbers_of(cells: Cells, decimal: str, unit: str | None = None) -> tuple[Floats, list[int]]:
    """Read each distinct text as a number; return the numbers and the codes of other texts."""
    read = read_numbers(cells.values, decimal, unit)
    wrong = [code for code, number in enumerate(read) if number is None]
    return np.asarray([np.nan if n is None else n for n in read], np.float64), wrong


def numeric_values(column: Any, missing: MissingValues) -> Floats:
    """Read a column of numbers as floats, NaN where it is empty or has a named missing value."""
    from pyarrow import ChunkedArray, float64

    # Chunk by chunk, so that a column is copied once. Not safe: whole numbers beyond 2^53, such as
    # ids, are rounded.
    chunks = column.chunks if isinstance(column, ChunkedArray) else [column]
    floats = [chunk.cast(float64(), safe=False).to_numpy(zero_copy_only=False) for chunk in chunks]
    joined = floats[0] if len(floats) == 1 else np.concatenate([np.empty(0), *floats])
    values = np.asarray(joined, np.float64)
    if missing.numbers:
        values = np.where(np.isin(values, missing.numbers), np.nan, values)
    return values


def days_of(column: Any, missing: MissingValues, date_format: str | None) -> tuple[Floats, Cells]:
    """Read dates as days since 1970-01-01; also return the texts, for messages."""
    from pyarrow import date32, int32

    if is_temporal(column):
        days = plain(column).cast(date32(), safe=False).cast(int32())
        values = np.asarray(days.cast("float64").to_numpy(zero_copy_only=False), np.float64)
        return values, Cells(np.full(len(values), -1, np.int32), ())
    cells = to_cells(column, missing)
    table = [_day(text, date_format or DATE_FORMATS[0]) for text in cells.values]
    return cells.look_up([np.nan if day is None else day for day in table]), cells


def _day(text: str, date_format: str) -> float | None:
    """Read a date, with or without a time of day after it."""
    from datetime import date, datetime

    written = text.strip()
    try:
        if date_format == DATE_FORMATS[0]:
            found = datetime.fromisoformat(written).date()
        else:
            try:
                found = datetime.strptime(written, date_format).date()
            except ValueError:
                found = datetime.strptime(_TIME.sub("", written), date_format).date()
    except ValueError:
        return None
    return float((found - date(1970, 1, 1)).days)


def date_formats(cells: Cells) -> list[str]:
    """List the formats in which every text is a date."""
    # A bare number such as 20240131 is a date only if the user says so.
    if not cells.values or all(text.strip().isdigit() for text in cells.values):
        return []
    return [f for f in DATE_FORMATS if all(_day(text, f) is not None for text in cells.values)]
