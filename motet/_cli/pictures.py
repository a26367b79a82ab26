"""Small pictures in text: bars, one character high."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from motet._cli.terminal import can_draw

BLOCKS, ASCII = "·▁▂▃▄▅▆▇█", " .:-=+*#@"  # the first one is nothing at all


def bars(counts: Sequence[float], largest: float | None = None) -> str:
    """Draw counts as bars next to each other; only a count of 0 has no bar.

    >>> bars([0, 1, 4, 8])
    '·▁▄█'
    """
    marks = BLOCKS if can_draw(BLOCKS) else ASCII
    top = largest or max(counts, default=0) or 1
    levels = [0 if count == 0 else max(1, round(8 * count / top)) for count in counts]
    return "".join(marks[level] for level in levels)


def fitted(counts: Sequence[float], width: int) -> list[float]:
    """Add neighbours up until the counts fit a width.

    >>> fitted([1, 2, 3, 4, 5], 3)
    [3.0, 7.0, 5.0]
    """
    per_bar = -(-len(counts) // width)
    starts = range(0, len(counts), per_bar)
    return [float(sum(counts[start : start + per_bar])) for start in starts]


def distribution(values: Sequence[float], *, low: float, high: float, bins: int = 20) -> str:
    """Draw how many values lie where between two ends."""
    counts, _ = np.histogram(values, bins=bins, range=(low, high))
    return bars(counts.tolist())
