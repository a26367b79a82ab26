"""Markdown of model cards: tables, and names from the data that cannot become markup."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table."""
    lines = [head, ["---" for _ in head], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def code(text: Any) -> str:
    """Quote a name from the data, so that it cannot become markup.

    >>> code("a`b")
    "`a'b`"
    """
    plain = " ".join(str(text).split()).replace("`", "'").replace("|", "\\|")
    return f"`{plain}`"
