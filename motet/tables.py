"""Tables as plain text, 80 columns wide at most."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import Any

from motet.comparison import Comparison

WIDTH = 80
LABEL = 15  # what the other columns leave


def comparison_text(comparison: Comparison) -> str:
    """Write a comparison: what the numbers are, how well each method does, what it costs."""
    summaries = [comparison.summary(label) for label in comparison.labels]
    return "\n\n".join(
        [_title(comparison), _scores(comparison, summaries), _costs(summaries), _notes(comparison)]
    )


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Align columns, the first to the left and the others to the right, under a ruled header."""
    widths = [max(len(cell) for cell in column) for column in zip(header, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        first, *others = zip(cells, widths, strict=True)
        return "  ".join([first[0].ljust(first[1]), *(cell.rjust(w) for cell, w in others)])

    return "\n".join([line(header), "─" * len(line(header)), *(line(row) for row in rows)])


def share(value: float) -> str:
    """Write a share as a percentage."""
    return f"{100 * value:.0f}%"


def number(value: float) -> str:
    """Write a score in few columns.

    >>> number(0.98765), number(12.3456), number(1234.56)
    ('0.988', '12.3', '1235')
    """
    return f"{value:.3f}" if abs(value) < 9.9995 else f"{value:.{1 if abs(value) < 99.95 else 0}f}"


def shorten(label: str, width: int = LABEL) -> str:
    """Cut a label to the width that a table has for it."""
    return label if len(label) <= width else f"{label[: width - 1]}…"


def size(count: float) -> str:
    """Write a number of bytes for people.

    >>> size(0), size(999), size(1_234_567)
    ('0 B', '999 B', '1.2 MB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def amount(count: float) -> str:
    """Write a large number in a few digits.

    >>> amount(54), amount(54_321), amount(2_500_000)
    ('54', '54.3k', '2.5M')
    """
    for unit in ("", "k", "M", "G"):
        if count < 999.5:
            return f"{count:.0f}" if not unit else f"{count:.1f}{unit}"
        count /= 1000
    return f"{count:.1f}T"


def plural(count: int, what: str) -> str:
    """Count things: "1 seed", "2 seeds"."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _title(comparison: Comparison) -> str:
    first = comparison.rows[0].evaluation
    better = "higher" if first.higher_is_better else "lower"
    seeds = ", ".join(str(seed) for seed in comparison.seeds)
    conditions = (
        f"{first.point}, round {first.round}, {plural(len(first.rows), 'client')}, "
        f"{comparison.data}, cohort {comparison.cohort}, "
        f"{'seed' if len(comparison.seeds) == 1 else 'mean of seeds'} {seeds}"
    )
    return (
        f"{first.metric.capitalize()} on each client's own {first.split} data ({better} is "
        f"better)\n{fill(conditions, WIDTH)}"
    )


def _scores(comparison: Comparison, summaries: Sequence[dict[str, Any]]) -> str:
    header = [
        "method",
        "mean",
        "± seed",
        "weighted",
        "std",
        "decile",
        "worst",
        "<local",
        "<FedAvg+",
    ]
    names = ("mean", "seed_std", "weighted_mean", "std", "decile", "worst")
    own = {comparison.label_of(name): name for name in ("local", "fedavg-ft")}
    rows = [
        [
            shorten(s["label"]),
            *(number(s[name]) for name in names),
            *(
                "-" if own.get(s["label"]) == reference else share(s[key])
                for reference, key in (
                    ("local", "harmed_vs_local"),
                    ("fedavg-ft", "harmed_vs_fedavg_ft"),
                )
            ),
        ]
        for s in summaries
    ]
    if len(comparison.seeds) == 1:  # one seed has no spread
        header, rows = _without(header, 2), [_without(row, 2) for row in rows]
    return aligned(header, rows)


def _without(cells: list[str], position: int) -> list[str]:
    return cells[:position] + cells[position + 1 :]


def _costs(summaries: Sequence[dict[str, Any]]) -> str:
    header = ["method", "sent up", "sent down", "gradients", "seconds", "kept per client"]
    return aligned(
        header,
        [
            [
                shorten(s["label"]),
                size(s["bytes_up"]),
                size(s["bytes_down"]),
                amount(s["gradients"]),
                f"{s['seconds']:.1f}",
                size(s["private_bytes"]),
            ]
            for s in summaries
        ],
    )


def _notes(comparison: Comparison) -> str:
    lines = [
        "decile: nine of ten clients do better. <local, <FedAvg+: share of clients that",
        "do worse than training alone, and than fine-tuning the global model.",
        "The split, the cohorts and the initial weights are the same for every method.",
    ]
    if comparison.added:
        lines.append(f"Added for reference: {', '.join(comparison.added)}.")
    return "\n".join(lines)
