"""The parts of which notebook views are made: small tables that read on a light and a dark page.

Every text that comes from data is escaped, and no colour is set but the page's own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

MOST_ROWS = 20
BOX = "font:13px/1.45 system-ui,sans-serif;max-width:60em"
FAINT = "opacity:.7"
TABLE = "border-collapse:collapse;margin:.3em 0;font:inherit;color:inherit"
CELL = "padding:1px 12px 1px 0;text-align:left;background:none;vertical-align:top"
BAR = "display:inline-block;height:.7em;background:currentColor;opacity:.35"


class Markup(str):
    """Text that is HTML already; everything else is escaped."""

    __slots__ = ()


def strong(text: str) -> Markup:
    """Set text in bold."""
    return Markup(f"<b>{escape(text)}</b>")


def bar(share: float) -> Markup:
    """Draw a share between 0 and 1 as a bar."""
    width = 0.0 if math.isnan(share) else min(max(share, 0.0), 1.0)
    return Markup(f'<span style="{BAR};width:{6 * width:.2f}em"></span>')


def _cell(value: Any) -> str:
    return value if isinstance(value, Markup) else escape(str(value))


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], total: int = 0) -> str:
    """Lay rows out as a table; `total` is how many rows there are in all."""
    body = [list(row) for row in rows]
    names = "".join(f'<th style="{CELL};{FAINT}">{escape(name)}</th>' for name in head)
    lines = ["".join(f'<td style="{CELL}">{_cell(value)}</td>' for value in row) for row in body]
    drawn = "".join(f'<tr style="background:none">{line}</tr>' for line in [names, *lines] if line)
    more = faint(f"... {total - len(body)} more") if total > len(body) else ""
    return f'<table style="{TABLE}">{drawn}</table>{more}'


def count(number: int, what: str) -> str:
    """Write a number with its noun: "1 round", "2 rounds"."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def title(title: str, about: str) -> str:
    """Write a heading with a remark beside it."""
    return f'<div><b>{escape(title)}</b> <span style="{FAINT}">{escape(about)}</span></div>'


def line(text: str) -> str:
    """Write a line of text."""
    return f"<div>{escape(text)}</div>"


def faint(text: str) -> str:
    """Write a line of text that steps back."""
    return f'<div style="{FAINT}">{escape(text)}</div>'


def details(summary: str, inside: str) -> str:
    """Hide something behind a summary."""
    return f"<details><summary>{escape(summary)}</summary>{inside}</details>"


def box(*parts: str) -> str:
    """Put parts into one box."""
    return f'<div style="{BOX}">{"".join(parts)}</div>'
