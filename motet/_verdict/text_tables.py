"""Text tables: aligned columns within the width of a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from motet._core.visible_text import visible

WIDTH = 80
LABEL = 15  # columns left for the label by the other columns


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Align the first column left and the others right, under a header with a rule."""
    widths = [max(len(cell) for cell in column) for column in zip(header, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        first, *others = zip(cells, widths, strict=True)
        text = "  ".join([first[0].ljust(first[1]), *(cell.rjust(w) for cell, w in others)])
        return text.rstrip()

    lines = [line(header), *(line(row) for row in rows)]
    return "\n".join([lines[0], "─" * max(map(len, lines)), *lines[1:]])


def shorten(label: str, width: int = LABEL) -> str:
    """Shorten a label to the width of its column."""
    seen = visible(label)
    return seen if len(seen) <= width else f"{seen[: width - 1]}…"
