"""Tables as plain text, 80 columns wide at most."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import Any

from motet.comparing.comparison import Comparison, Row
from motet.judging.phrases import amount, gain, number, plural, share, size, unit
from motet.judging.statistics import PairedDifference
from motet.judging.verdict import Verdict

__all__ = ["aligned", "amount", "comparison_text", "number", "plural", "share", "shorten", "size"]

WIDTH = 80
LABEL = 15  # what the other columns leave
BETTER, WORSE = "▲", "▼"
PROBABLY_BETTER, PROBABLY_WORSE = "△", "▽"
UNKNOWN = " "


def comparison_text(comparison: Comparison) -> str:
    """Write a comparison: what the numbers are, how well each method does, what it costs."""
    found = comparison.verdict()
    parts = [_verdict(found)]
    if comparison.rows:
        summaries = [comparison.summary(label) for label in comparison.labels]
        scores = _scores(comparison, summaries)
        costs = _costs(comparison, summaries)
        parts = [_title(comparison), scores, _differences(comparison, found), costs, *parts]
        parts.append(_notes(comparison, found))
    return "\n\n".join(part for part in parts if part)


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Align columns, the first to the left and the others to the right, under a ruled header."""
    widths = [max(len(cell) for cell in column) for column in zip(header, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        first, *others = zip(cells, widths, strict=True)
        text = "  ".join([first[0].ljust(first[1]), *(cell.rjust(w) for cell, w in others)])
        return text.rstrip()

    lines = [line(header), *(line(row) for row in rows)]
    return "\n".join([lines[0], "─" * max(map(len, lines)), *lines[1:]])


def shorten(label: str, width: int = LABEL) -> str:
    """Cut a label to the width that a table has for it."""
    return label if len(label) <= width else f"{label[: width - 1]}…"


def _title(comparison: Comparison) -> str:
    first = comparison.rows[0].evaluation
    better = "higher" if first.higher_is_better else "lower"
    seeds = ", ".join(str(seed) for seed in comparison.seeds)
    one_round = len(_chosen_rounds(comparison.rows)) == 1
    conditions = (
        f"{first.point}, {f'round {first.round}' if one_round else 'rounds as listed below'}, "
        f"{plural(len(first.rows), 'client')}, "
        f"{comparison.data}, cohort {comparison.cohort}, "
        f"{'seed' if len(comparison.seeds) == 1 else 'mean of seeds'} {seeds}"
    )
    return (
        f"{first.metric.capitalize()} on each client's own {first.split} data ({better} is "
        f"better)\n{fill(conditions, WIDTH)}"
    )


# -- how well -----------------------------------------------------------------


def _scores(comparison: Comparison, summaries: Sequence[dict[str, Any]]) -> str:
    columns = ["mean", "± seed", "weighted", "std", "decile", "worst", "<local", "<FedAvg+"]
    names = ("mean", "seed_std", "weighted_mean", "std", "decile", "worst")
    rows = [
        [
            shorten(s["label"]),
            *(number(s[name]) for name in names),
            _harmed(s, comparison.label_of("local"), "harmed_vs_local"),
            _harmed(s, comparison.label_of("fedavg-ft"), "harmed_vs_fedavg_ft"),
        ]
        for s in summaries
    ]
    for label in dict.fromkeys(failure.label for failure in comparison.failures):
        if label not in comparison.labels:
            rows.append([shorten(label), "failed", *("-" for _ in columns[1:])])
    table = [["method", *columns], *rows]
    if len(comparison.seeds) == 1:  # one seed has no spread
        table = [row[:2] + row[3:] for row in table]
    return aligned(table[0], table[1:])


def _harmed(summary: dict[str, Any], reference: str | None, key: str) -> str:
    unknown = summary[key] is None or summary["label"] == reference
    return "-" if unknown else share(summary[key])


def _differences(comparison: Comparison, found: Verdict) -> str:
    """Set every method against plain fine-tuning and training alone; "" if both are missing."""
    references = {
        "FedAvg+": comparison.label_of("fedavg-ft"),
        "local": comparison.label_of("local"),
    }
    present = {name: label for name, label in references.items() if label is not None}
    metric = comparison.rows[0].evaluation.metric
    header = [cell for name in present for cell in (f"vs {name}  ", "95% interval")]
    rows = [
        [cell for reference in present.values() for cell in _cells(found, label, reference, metric)]
        for label in comparison.labels
    ]
    labels = [shorten(label) for label in comparison.labels]
    table = aligned(
        [f"gain in {unit(metric)}", *header],
        [[label, *row] for label, row in zip(labels, rows, strict=True)],
    )
    return table if found.differences else ""


def _cells(found: Verdict, label: str, reference: str, metric: str) -> tuple[str, str]:
    difference = found.against(label, reference)
    if difference is None:
        return f"-{UNKNOWN:>2}", "-"
    if difference.clients < 2:
        return f"{gain(difference.mean, metric)}{UNKNOWN:>2}", "-"
    low, high = gain(difference.low, metric), gain(difference.high, metric)
    return f"{gain(difference.mean, metric)} {_mark(difference)}", f"[{low}, {high}]"


def _mark(difference: PairedDifference) -> str:
    marks = {
        BETTER: difference.better,
        WORSE: difference.worse,
        PROBABLY_BETTER: difference.probably_better,
        PROBABLY_WORSE: difference.probably_worse,
    }
    return next((mark for mark, holds in marks.items() if holds), UNKNOWN)


# -- at what cost, and what it means ------------------------------------------


def _costs(comparison: Comparison, summaries: Sequence[dict[str, Any]]) -> str:
    table = [["method", "sent up", "sent down", "gradients", "seconds", "kept/client", "round"]]
    for summary in summaries:
        table.append(
            [
                shorten(summary["label"]),
                size(summary["bytes_up"]),
                size(summary["bytes_down"]),
                amount(summary["gradients"]),
                f"{summary['seconds']:.1f}",
                size(summary["private_bytes"]),
                _chosen(comparison.of(summary["label"])),
            ]
        )
    if len(_chosen_rounds(comparison.rows)) == 1:  # the title has said it
        table = [row[:-1] for row in table]
    return aligned(table[0], table[1:])


def _chosen(rows: Sequence[Row]) -> str:
    rounds = _chosen_rounds(rows)
    return str(rounds[0]) if len(rounds) == 1 else f"{rounds[0]}-{rounds[-1]}"


def _chosen_rounds(rows: Sequence[Row]) -> list[int]:
    return sorted({row.evaluation.round for row in rows})


def _verdict(found: Verdict) -> str:
    said_by_title = 1 if found.best else 0
    bullets = (
        fill(sentence, WIDTH, initial_indent="- ", subsequent_indent="  ")
        for sentence in found.sentences[said_by_title:]
    )
    return "\n".join(["Verdict", *bullets])


def _notes(comparison: Comparison, found: Verdict) -> str:
    text = [
        "decile: nine of ten clients do better. <local, <FedAvg+: share of clients that do worse "
        "than training alone, and than fine-tuning the global model.",
        f"{BETTER} better, {WORSE} worse beyond chance: a paired test over clients and seeds, "
        f"corrected for {plural(found.comparisons, 'comparison')}. {PROBABLY_BETTER} "
        f"{PROBABLY_WORSE} probably: the interval is without 0, but among so many one may be so by "
        "chance. No mark: not distinguishable.",
        "The split, the cohorts and the initial weights are the same for every method.",
    ]
    if comparison.added:
        text.append(f"Added for reference: {', '.join(comparison.added)}.")
    return "\n".join(fill(note, WIDTH) for note in text)
