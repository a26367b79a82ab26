"""Spellings of the same site, category or label, merged into the most frequent one."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from motet._core.text import listed
from motet.data._tables.cells import Cells, exact_spelling, same_spelling, tidy
from motet.data._tables.fixes import switched
from motet.data._tables.numbers import to_number


class Merged(NamedTuple):
    """A column whose values are spelled in one way.

    Attributes:
        cells: Values in order: by number if all are numbers, else by text.
        variants: The spellings that were merged, by the one that stays.
    """

    cells: Cells
    variants: dict[str, tuple[str, ...]]

    def remark(self, what: str) -> str | None:
        """Say which spellings were merged."""
        if not self.variants:
            return None
        shown = [_read_as(name, texts) for name, texts in list(self.variants.items())[:3]]
        more = f" and {len(self.variants) - 3} more" if len(self.variants) > 3 else ""
        pairs = [(name, text) for name, texts in self.variants.items() for text in texts]
        unseen = sum(looks_alike(name, text) for name, text in pairs)
        said = f"{what}: case and spaces do not count, so {', '.join(shown)}{more}."
        if unseen:
            said = (
                f"{what}: case, spaces and how characters are encoded (Unicode form, invisible "
                f"marks) do not count, so {', '.join(shown)}{more}."
            )
        if unseen == len(pairs):  # always merged
            return said
        return f"{said} To keep them apart, use {switched('merge_spellings', on=False)}."


def _read_as(name: str, texts: tuple[str, ...]) -> str:
    said = (name, *texts)
    quoted = listed([f'"{text}"{_form(text, said[:n])}' for n, text in enumerate(texts, 1)])
    return f'{quoted} {"is" if len(texts) == 1 else "are"} read as "{name}"'


def looks_alike(name: str, text: str) -> bool:
    """Tell whether two spellings differ in characters, but look the same in print."""
    return name != text and tidy(name) == tidy(text) and name.split() != text.split()


def _form(text: str, before: tuple[str, ...]) -> str:
    """Name a character by which a text differs from one before it that looks the same."""
    name = next((name for name in before if looks_alike(name, text)), None)
    if name is None:
        return ""
    # ASCII letters differ, too, where an accent is a character of its own.
    differ = [c for c in (*text, *name) if (c in text) != (c in name)]
    other = min(differ, key=str.isascii)
    which = "with" if other in text else "without"
    return f" ({which} U+{ord(other):04X}, {unicodedata.name(other, 'unnamed').lower()})"


def merged(cells: Cells, *, ignore_case: bool) -> Merged:
    """Merge spellings that differ in spaces, and in case if it is ignored."""
    key: Callable[[str], str] = same_spelling if ignore_case else exact_spelling
    groups: dict[str, list[int]] = {}
    for code, text in enumerate(cells.values):
        groups.setdefault(key(text), []).append(code)
    counts = cells.counts() if len(groups) < len(cells.values) else np.empty(0, np.int64)
    # The most frequent spelling stays, and of equally frequent ones the first in order.
    chosen = {
        name: min(codes, key=lambda code: (-counts[code], cells.values[code]))
        if len(codes) > 1
        else codes[0]
        for name, codes in groups.items()
    }
    spelled = {name: " ".join(cells.values[code].split()) for name, code in chosen.items()}
    ordered = in_order(list(spelled.values()))
    place = {text: number for number, text in enumerate(ordered)}
    numbers = [-1] * (len(cells.values) + 1)
    for name, codes in groups.items():
        for code in codes:
            numbers[code] = place[spelled[name]]
    variants = {
        spelled[name]: tuple(cells.values[code] for code in codes if code != chosen[name])
        for name, codes in groups.items()
        if len(codes) > 1
    }
    return Merged(Cells(np.asarray(numbers, np.int32)[cells.codes], tuple(ordered)), variants)


def in_order(texts: list[str]) -> list[str]:
    """Sort numbers by value and other texts by letter.

    >>> in_order(["10", "9"]), in_order(["b", "a10", "a9"])
    (['9', '10'], ['a10', 'a9', 'b'])
    """
    numbers: list[float] = []
    for text in texts:
        number = to_number(text, ".")
        if number is None or math.isnan(number):
            return sorted(texts)
        numbers.append(number)
    return [text for _, text in sorted(zip(numbers, texts, strict=True))]
