"""What each client contributes to the others, as a sentence and a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

from motet._core.text import gain, listed, unit
from motet._verdict.results import Results
from motet._verdict.text_tables import WIDTH, aligned, shorten

MOST = 20  # clients in the terminal: half of them the most useful ones
MARKS = {"sure": "▲▼", "probable": "△▽", "in these runs": "↑↓", "none": "  "}


def described(contributions: Sequence[Mapping[str, Any]]) -> str:
    """Say in one sentence who makes a difference to the others; "" if no client was left out."""
    if not contributions:
        return ""
    clear = [one for one in contributions if one["grade"] != "none"]
    helping = [one["site"] for one in clear if one["gain"] > 0]
    harming = [one["site"] for one in clear if one["gain"] < 0]
    parts = [f"the others gain from {listed(helping)}"] if helping else []
    parts += [f"the others lose from {listed(harming)}"] if harming else []
    text = "; ".join(parts) or "no single client makes a clear difference to the others"
    return f"Clients left out one at a time under {contributions[0]['label']}: {text}."


def contributions_text(comparison: Results) -> str:
    """Return the contributions as text; "" if no client was left out."""
    rows = list(comparison.contributions)
    if not rows:
        return ""
    metric = comparison.rows[0].evaluation.metric
    shown = rows if len(rows) <= MOST else [*rows[: MOST // 2], *rows[-MOST // 2 :]]
    cells = [
        [
            shorten(one["site"]),
            f"{gain(one['gain'], metric)} {mark(one)}",
            f"[{gain(one['low'], metric)}, {gain(one['high'], metric)}]",
            f"{one['clients_better']} of {one['clients']}",
        ]
        for one in shown
    ]
    header = ["left out", f"{unit(metric)} for others  ", "95% interval", "others better with it"]
    return f"{fill(described(rows), WIDTH)}\n\n{aligned(header, cells)}"


def mark(contribution: Mapping[str, Any]) -> str:
    """Return the mark of a contribution: its direction and how certain it is."""
    return MARKS[contribution["grade"]][contribution["gain"] < 0].strip() or " "
