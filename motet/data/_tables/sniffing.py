"""Detection of how a text file was written: encoding, delimiter and decimal separator."""

from __future__ import annotations

import codecs
import csv
import re
from collections import Counter
from typing import NamedTuple

from motet.data._tables.numbers import GAPS
from motet.errors import RequestError

SAMPLE = 1 << 16  # bytes that are looked at
DELIMITERS = (",", ";", "\t", "|")
# Encodings of the spreadsheets and databases that hospitals export from, the likely ones first.
LIKELY = ("cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp932", "gb18030", "big5", "euc_kr")
OLD_WESTERN = ("cp850", "mac_roman")  # of DOS and old Macintoshes
_UNIT = re.compile(r"(?<=\d)\s*[^\d,.]{1,15}$")
# Cells that tell the decimal separator: 1,5 and 0,250 and 1.234,5 and 1.234.567, but not 1,234.
_TELLING = {
    mark: re.compile(
        rf"[+-]?(\d*{at}(?!\d{{3}}$)\d+|\d{{4,}}{at}\d+|0?{at}\d+"
        rf"|[1-9]\d{{0,2}}({other}\d{{3}})+{at}\d+|[1-9]\d{{0,2}}({other}\d{{3}}){{2,}})"
    )
    for mark, at, other in ((",", ",", r"\."), (".", r"\.", ","))
}
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


class Dialect(NamedTuple):
    """How the cells of a text file are separated.

    Attributes:
        delimiter: Between two cells.
        decimal: Decimal separator of its numbers.
        skip: Lines before the header.
    """

    delimiter: str
    decimal: str
    skip: int = 0


def marked_encoding(start: bytes) -> str | None:
    """Read the encoding off the first bytes: a byte order mark, or the zeros of UTF-16."""
    for mark, name in _BOMS:
        if start.startswith(mark):
            return name
    even, odd = start[0:2000:2].count(0), start[1:2000:2].count(0)
    half = len(start[:2000]) / 2
    if odd > 0.6 * half and even < 0.1 * half:
        return "utf-16-le"
    return "utf-16-be" if even > 0.6 * half and odd < 0.1 * half else None


def is_utf8(contents: bytes | memoryview) -> bool:
    """Tell whether bytes are valid UTF-8; read in pieces, so that no second copy is made."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    view = memoryview(contents)
    try:
        for start in range(0, len(view), 1 << 22):
            decoder.decode(view[start : start + (1 << 22)])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def detect_encoding(contents: bytes | memoryview) -> str:
    """Guess the encoding of bytes that are not UTF-8, from the lines with special characters."""
    from charset_normalizer import from_bytes

    special = _special_lines(bytes(contents[: 1 << 24]))
    if not _reads_well(special, "cp1252"):
        old = next((name for name in OLD_WESTERN if _reads_well(special, name)), None)
        if old is not None:
            return old
    found = from_bytes(special, cp_isolation=list(LIKELY)).best()
    if found is None or found.encoding in ("latin_1", "iso8859_1", "ascii", "utf_8"):
        return "cp1252" if _decodes(special, "cp1252") else "latin-1"
    # Single words do not tell Western from Central European text; Western is more frequent.
    if found.encoding.startswith("cp125") and len(special) < 2000 and _is_western(special):
        return "cp1252"
    return str(found.encoding)


def _special_lines(contents: bytes) -> bytes:
    lines = [line for line in contents.splitlines() if not line.isascii()]
    return b"\n".join(lines)[:SAMPLE]


def _decodes(contents: bytes, encoding: str) -> bool:
    try:
        contents.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def _is_western(contents: bytes) -> bool:
    """Tell whether the special characters are letters of Western European languages."""
    if not _decodes(contents, "cp1252"):
        return False
    special = [c for c in contents.decode("cp1252") if not c.isascii()]
    return sum(
        c.isalpha() or c in "\N{DEGREE SIGN}\N{SUPERSCRIPT TWO}\N{PLUS-MINUS SIGN}\N{EURO SIGN}"
        for c in special
    ) >= 0.9 * len(special)


def _reads_well(contents: bytes, encoding: str) -> bool:
    """Tell whether special characters are letters within words of Latin letters, in their case."""
    if not _decodes(contents, encoding):
        return False
    text = contents.decode(encoding)
    special = [place for place, character in enumerate(text) if not character.isascii()]
    if len(special) > 0.3 * sum(character.isalpha() for character in text):
        return False  # another script
    return sum(_fits(text, place) for place in special) >= 0.9 * len(special)


def _fits(text: str, place: int) -> bool:
    letter, before, after = (
        text[place],
        text[max(0, place - 1) : place],
        text[place + 1 : place + 2],
    )
    if not letter.isalpha():
        return False
    return letter.islower() or not before.isalpha() or not (before.islower() or after.islower())


def decoded_sample(contents: bytes | memoryview, encoding: str) -> str:
    """Decode the first whole lines of a file."""
    text = bytes(contents[:SAMPLE]).decode(encoding, errors="replace").removeprefix("\ufeff")
    cut = max(text.rfind("\n"), text.rfind("\r")) if len(contents) > SAMPLE else len(text)
    return text[:cut] if cut > 0 else text


def sniff(
    sample: str, delimiter: str | None, decimal: str | None, likely_decimal: str = "."
) -> Dialect:
    r"""Find out how cells are separated, from the first lines of a file.

    >>> sniff("a;b\n1,5;2\n2,5;3\n", None, None)
    Dialect(delimiter=';', decimal=',', skip=0)
    """
    skip = 0
    first, _, rest = sample.partition("\n")
    announced = re.fullmatch(r'"?sep=([\t -!#-~])"?\r?', first.strip("\r"), re.IGNORECASE)
    if announced:  # the line by which Excel is told the delimiter
        skip, sample, delimiter = 1, rest, delimiter or announced.group(1)
    chosen = delimiter or max(DELIMITERS, key=lambda mark: _consistency(sample, mark))
    return Dialect(chosen, decimal or _decimal(rows_of(sample, chosen), likely_decimal), skip)


def _consistency(sample: str, delimiter: str) -> tuple[float, int]:
    """Measure how well a delimiter makes rows of one width of two cells or more."""
    widths = Counter(len(row) for row in rows_of(sample, delimiter))
    width, rows = widths.most_common(1)[0] if widths else (1, 0)
    return (rows / widths.total(), width) if width > 1 else (0.0, 0)


def rows_of(sample: str, delimiter: str) -> list[list[str]]:
    """Split a sample into rows of cells; rows that cannot be split are left out."""
    try:
        return [row for row in csv.reader(sample.splitlines(), delimiter=delimiter) if row]
    except csv.Error:
        return [line.split(delimiter) for line in sample.splitlines() if line]


def _decimal(rows: list[list[str]], likely: str) -> str:
    """Find the decimal separator; `likely` if no cell tells it: 1.234 alone may be a thousand."""
    # Without units and without spaces between groups of digits: 1 234,5 kg.
    cells = [GAPS.sub("", _UNIT.sub("", cell.strip())) for row in rows[1:] for cell in row]
    comma, point = (any(map(_TELLING[mark].fullmatch, cells)) for mark in ",.")
    if comma and point:
        return "."
    return "," if comma else "." if point else likely


def check_encoding(encoding: str) -> None:
    """Refuse an encoding that Python does not know."""
    try:
        codecs.lookup(encoding)
    except LookupError:
        raise RequestError(
            f'no encoding is called "{encoding}"; usual ones are utf-8, cp1252, latin-1, utf-16.',
            option="encoding",
        ) from None


def special_word(contents: memoryview, encoding: str) -> tuple[int, str]:
    """Find a word with a special character, to show how it was read."""
    for number, line in enumerate(bytes(contents[: 1 << 24]).splitlines(), 1):
        if not line.isascii():
            text = line.decode(encoding, errors="replace")
            words = [word for word in re.findall(r"\w+|\S", text) if not word.isascii()]
            return number, words[0] if words else ""
    return 1, ""
