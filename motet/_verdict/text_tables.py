"""Text tables: aligned columns within the width of a terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from motet._core.visible_text import visible

WIDTH = 80
LABEL = 15  # columns left for the label by the other columns
LEAST = 8  # columns of a label that a crowded table keeps


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Align the first column left and the others right, under a header with a rule.

    Labels in the first column are shortened further if the table is too wide with them.
    """
    widths = [max(wide(cell) for cell in column) for column in zip(header, *rows, strict=True)]
    excess = sum(widths) + 2 * (len(widths) - 1) - WIDTH
    if excess > 0:
        widths[0] = min(widths[0], max(LEAST, widths[0] - excess))

    def line(cells: Sequence[str]) -> str:
        label = shorten(cells[0], widths[0])
        others = (_padding(cell, w) + cell for cell, w in zip(cells[1:], widths[1:], strict=True))
        return "  ".join([label + _padding(label, widths[0]), *others]).rstrip()

    lines = [line(header), *(line(row) for row in rows)]
    return "\n".join([lines[0], "─" * max(map(wide, lines)), *lines[1:]])


def shorten(label: str, width: int = LABEL) -> str:
    """Shorten a label to the width of its column."""
    seen = visible(label)
    if wide(seen) <= width:
        return seen
    while wide(seen) > width - 1:
        seen = seen[:-1]
    return f"{seen}…"


def wide(text: str) -> int:
    """Return how many columns of a terminal a text takes.

    >>> wide("Zürich"), wide("医院")
    (6, 4)
    """
    return sum(
        0 if unicodedata.combining(sign) else 1 + (unicodedata.east_asian_width(sign) in "WF")
        for sign in text
    )


def _padding(text: str, width: int) -> str:
    return " " * (width - wide(text))
