"""Numbers as people write them: grouped digits, decimal commas, units and percent signs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

YES_NO = "yes/no"  # the unit of answers, which are 1 and 0
CLOCK = "hours, or a time such as 08:30"  # the unit of times of day, which are hours
_TIME = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}(?:\.\d+)?))?\s*([AaPp])?(?:\.?[Mm]\.?)?")
_YES_NO = {
    **dict.fromkeys(("yes", "y", "true", "t", "1"), 1.0),
    **dict.fromkeys(("no", "n", "false", "f", "0"), 0.0),
}
# 1,234,567: digits in groups of three.
_GROUPS = {mark: re.compile(rf"[+-]?[1-9]\d{{0,2}}(\{mark}\d{{3}})+") for mark in ",."}
_BETWEEN = " '\u00a0\u2009\u202f\N{RIGHT SINGLE QUOTATION MARK}"  # between groups: 1 234, 1'234
GAPS = re.compile(f"[{_BETWEEN}]")
_SPACED = re.compile(
    rf"[+-]?[1-9]\d{{0,2}}(?P<gap>[{_BETWEEN}])\d{{3}}((?P=gap)\d{{3}})*([.,]\d*)?"
)
# ="40" and '40, by which spreadsheets keep text; (40) and 40-, by which accountants write minus.
_MARKED = re.compile(
    r"=\"(?P<formula>[^\"]+)\"|'(?P<text>[^']+)|\((?P<brackets>[\d.,]+)\)|(?P<minus>[\d.,]+)-"
)
_WITH_UNIT = re.compile(
    rf"(?P<before>[$€£¥]?)\s*(?P<number>[+-]?[\d.,][\d.,{_BETWEEN}]*?(?:[eE][+-]?\d+)?)"
    r"\s*(?P<after>[^\W\d_][^\d\s,;]{0,14}|[%‰°µ][^\d\s,;]{0,14})?"
)


def to_number(text: str, decimal: str) -> float | None:
    """Read one number; None if the text is not one.

    >>> to_number(" 1.5 ", "."), to_number("1,5", ","), to_number("1,5", ".")
    (1.5, 1.5, None)
    >>> to_number("1,234.5", "."), to_number("1.234,5", ",")
    (1234.5, 1234.5)
    """
    cleaned = text.strip().replace("\N{MINUS SIGN}", "-")
    if "_" in cleaned:  # which Python reads as a separator of digits
        return None
    groups = other_mark(decimal)
    if groups in cleaned:
        whole, _, rest = cleaned.partition(decimal)
        if not _GROUPS[groups].fullmatch(whole) or groups in rest:
            return None
        cleaned = cleaned.replace(groups, "")
    cleaned = cleaned.replace(decimal, ".")
    try:
        return float(cleaned)
    except ValueError:
        return None


def other_mark(decimal: str) -> str:
    """Return the mark that is not the decimal separator."""
    return "," if decimal == "." else "."


def _spaced(text: str, decimal: str) -> float | None:
    """Read a number, which may have spaces or apostrophes between groups of three digits."""
    number = to_number(text, decimal)
    cleaned = text.strip()
    marked = None if number is not None else _MARKED.fullmatch(cleaned)
    if marked is not None:
        below = marked["brackets"] or marked["minus"]
        inner = _spaced(below or marked["formula"] or marked["text"], decimal)
        return -inner if inner is not None and below else inner
    if number is not None or not _SPACED.fullmatch(cleaned):
        return number
    return to_number(GAPS.sub("", cleaned), decimal)


class WithUnit(NamedTuple):
    """A number and the unit that is written with it; "" if there is none."""

    number: float
    unit: str


def with_unit(text: str, decimal: str) -> WithUnit | None:
    """Read a number with a unit before or after it; None if the text is something else.

    >>> with_unit("20 kg", "."), with_unit("$1,200.50", "."), with_unit("IV", ".")
    (WithUnit(number=20.0, unit='kg'), WithUnit(number=1200.5, unit='$'), None)
    """
    number = _spaced(text, decimal)
    if number is not None:
        return WithUnit(number, "")
    found = _WITH_UNIT.fullmatch(text.strip().replace("\N{MINUS SIGN}", "-"))
    if found is None or (found["before"] and found["after"]):
        return None
    number = _spaced(found["number"], decimal)
    return None if number is None else WithUnit(number, found["before"] or found["after"] or "")


def units_in(texts: Sequence[str], decimal: str) -> Counter[str] | None:
    """Count the units that numbers are written with; None if a text is something else."""
    units: Counter[str] = Counter()
    for text in texts:
        found = with_unit(text, decimal)
        if found is None:
            return None
        units[found.unit] += 1
    del units[""]
    return units


def read_numbers(texts: Sequence[str], decimal: str, unit: str | None) -> list[float | None]:
    """Read the distinct texts of a column as numbers; None for a text that is not one.

    Args:
        texts: The texts.
        decimal: Decimal separator. The other mark is a decimal separator, too, in "187,5", but only
            if no text has it between groups of digits: "1,234" would then be unclear.
        unit: Unit that may be written with a number.
    """
    read = [_spaced(text, decimal) for text in texts]
    if unit == YES_NO:
        words = (_YES_NO.get(text.strip().casefold()) for text in texts)
        read = [
            word if number is None else number for number, word in zip(read, words, strict=True)
        ]
    elif unit == CLOCK:
        read = [to_hours(t) if n is None else n for t, n in zip(texts, read, strict=True)]
    elif unit:
        for place, text in enumerate(texts):
            if read[place] is None:
                found = with_unit(text, decimal)
                read[place] = found.number if found is not None and found.unit == unit else None
    other = other_mark(decimal)
    wrong = [place for place, number in enumerate(read) if number is None]
    unclear = any(_groups_only(text, other) for text in texts)
    if wrong and not unclear and all(other in texts[place] for place in wrong):
        for place in wrong:
            read[place] = to_number(texts[place], other)
    return read


def to_hours(text: str) -> float | None:
    """Read a time of day as hours after midnight; None if the text is something else.

    >>> to_hours("08:30"), to_hours("6:45:36 pm"), to_hours("24:00"), to_hours("8.30")
    (8.5, 18.76, 24.0, None)
    """
    found = _TIME.fullmatch(text.strip())
    if found is None:
        return None
    hour, minute, second = int(found[1]), int(found[2]), float(found[3] or 0)
    if found[4]:
        hour = hour % 12 + (12 if found[4] in "Pp" else 0) if 1 <= hour <= 12 else 99
    hours = (hour * 3600 + minute * 60 + second) / 3600
    return hours if minute < 60 and second < 60 and hours <= 24 else None


def is_yes_no(texts: Sequence[str]) -> bool:
    """Tell whether texts answer a question, in one way of writing or several.

    Both answers must be there, and one of them as a word: "f" alone may be a category.

    >>> is_yes_no(["yes", "No", "1", "TRUE"]), is_yes_no(["f", "m"]), is_yes_no(["yes"])
    (True, False, False)
    """
    folded = {text.strip().casefold() for text in texts}
    known = {word: _YES_NO.get(word) for word in folded}
    is_word = any(len(word) > 1 for word in folded) or folded == {"y", "n"}
    return is_word and set(known.values()) == {0.0, 1.0}


def thousand_or_fraction(texts: Sequence[str], mark: str) -> str | None:
    """Find a text that is a thousand or a fraction, depending on what the mark means.

    >>> thousand_or_fraction(["2", "0.125", "1.234"], "."), thousand_or_fraction(["1.5"], ".")
    ('1.234', None)
    """
    return next((t for t in texts if t.count(mark) == 1 and _groups_only(t, mark)), None)


def _groups_only(text: str, mark: str) -> bool:
    return bool(_GROUPS[mark].fullmatch(text.strip()))
