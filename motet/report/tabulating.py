"""The tables of the page: cells with the text to read and the number to sort by."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from motet.comparing.comparison import Comparison
from motet.judging.phrases import amount, number, share, size
from motet.report.contents import spent_by_client

UNKNOWN = "\N{EN DASH}"


@dataclass(frozen=True)
class Cell:
    """What a reader sees, what the column is sorted by (None: last), and what is best in it."""

    text: str
    value: float | str | None
    best: bool = False
    remark: str = ""


@dataclass(frozen=True)
class Column:
    """A column's heading, and what it means."""

    title: str
    meaning: str
    numeric: bool = True
    descending: bool = True  # which way the first click sorts


@dataclass(frozen=True)
class Table:
    """Columns and rows, sorted by one of the columns."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    sorted_by: int = -1  # no column


@dataclass(frozen=True)
class Quantity:
    """A number of a method: where it is found, how it is written, and which way is better."""

    name: str
    column: Column
    text: Callable[[float], str]
    better: int = 0  # 1: more is better, -1: less is better, 0: neither


def score_table(comparison: Comparison) -> Table:
    """List how well the clients do under each method, the best method first."""
    summaries = [_compared(comparison, label) for label in comparison.labels]
    sign = 1 if comparison.rows[0].evaluation.higher_is_better else -1
    summaries.sort(key=lambda summary: (_unknown(summary["mean"]), -sign * summary["mean"]))
    quantities = [q for q in _scores(sign) if _worth_showing(q, comparison, summaries)]
    return _table(comparison, summaries, quantities, sorted_by=1)


def _compared(comparison: Comparison, label: str) -> dict[str, Any]:
    """Summarize a method; whom it harms is unknown without scores, and no news of a reference."""
    summary = comparison.summary(label)
    for name, key in (("local", "harmed_vs_local"), ("fedavg-ft", "harmed_vs_fedavg_ft")):
        if comparison.label_of(name) == label or _unknown(summary["mean"]):
            summary[key] = None
    return summary


def cost_table(comparison: Comparison) -> Table:
    """List what each method took."""
    summaries = [comparison.summary(label) for label in comparison.labels]
    quantities = [q for q in COSTS if _worth_showing(q, comparison, summaries)]
    return _table(comparison, summaries, quantities)


def tuned_table(comparison: Comparison) -> Table | None:
    """List the hyperparameters that a search chose."""
    chosen = {row.label: row.tuned for row in comparison.rows if row.tuned}
    rows = [
        (Cell(label, label), Cell(name, name), Cell(str(value), str(value)))
        for label, tuned in chosen.items()
        for name, value in tuned.items()
    ]
    columns = (
        Column("method", "", numeric=False, descending=False),
        Column("hyperparameter", "", numeric=False, descending=False),
        Column("chosen", "the value with the best validation score", numeric=False),
    )
    return Table(columns, tuple(rows)) if rows else None


def privacy_table(comparison: Comparison) -> Table | None:
    """List what each method spent of its clients' privacy."""
    rows = [
        _privacy_cells(row.label, row.seed, row.privacy, list(spent_by_client(row).values()))
        for row in comparison.rows
        if row.privacy
    ]
    columns = (
        Column("method", "", numeric=False, descending=False),
        Column("seed", "", descending=False),
        Column("largest epsilon", "of the client that is protected least"),
        Column("median epsilon", "half of the clients are protected better"),
        Column("delta", "the chance that the promise fails"),
        Column("protects", "whose presence nobody can be sure of", numeric=False, descending=False),
    )
    return Table(columns, tuple(rows)) if rows else None


def _privacy_cells(
    label: str, seed: int, privacy: Mapping[str, Any], spent: Sequence[float]
) -> tuple[Cell, ...]:
    # An account for all clients together is one number.
    whole = privacy.get("epsilon")
    spent = sorted(spent) or ([float(whole)] if isinstance(whole, int | float) else [])
    largest, median = (spent[-1], spent[len(spent) // 2]) if spent else (None, None)
    delta, protects = privacy.get("delta"), str(privacy.get("protects", UNKNOWN))
    return (
        Cell(label, label),
        Cell(str(seed), seed),
        *(Cell(UNKNOWN if e is None else f"{e:.2f}", e) for e in (largest, median)),
        Cell(UNKNOWN if delta is None else f"{delta:.0e}", delta),
        Cell(protects, protects),
    )


def _table(
    comparison: Comparison,
    summaries: Sequence[Mapping[str, Any]],
    quantities: Sequence[Quantity],
    *,
    sorted_by: int = -1,
) -> Table:
    best = {q.name: _best(q, summaries) for q in quantities}
    rows = [
        (
            _method_cell(comparison, summary),
            *(_cell(q, summary[q.name], best[q.name]) for q in quantities),
        )
        for summary in summaries
    ]
    method = Column("method", "", numeric=False, descending=False)
    columns = (method, *(q.column for q in quantities))
    return Table(columns, tuple(rows), sorted_by)


def _method_cell(comparison: Comparison, summary: Mapping[str, Any]) -> Cell:
    label = summary["label"]
    missing = len(comparison.seeds) - len(comparison.of(label))
    remarks = ["reference"] if summary["added"] else []
    if missing:
        remarks.append(f"{missing} of {len(comparison.seeds)} seeds missing")
    return Cell(label, label, remark=", ".join(remarks))


def _cell(quantity: Quantity, value: float | None, best: float | None) -> Cell:
    if value is None or math.isnan(value):
        return Cell(UNKNOWN, None)
    return Cell(quantity.text(value), value, best=value == best)


def _best(quantity: Quantity, summaries: Iterable[Mapping[str, Any]]) -> float | None:
    known = [s[quantity.name] for s in summaries if not _unknown(s[quantity.name])]
    if not quantity.better or len(known) < 2:
        return None
    return float(max(known) if quantity.better > 0 else min(known))


def _worth_showing(
    quantity: Quantity, comparison: Comparison, summaries: Sequence[Mapping[str, Any]]
) -> bool:
    """Leave out what one seed cannot have, and what nobody knows."""
    if quantity.name == "seed_std" and len(comparison.seeds) == 1:
        return False
    return any(not _unknown(summary[quantity.name]) for summary in summaries)


def _unknown(value: float | None) -> bool:
    return value is None or math.isnan(value)


def _scores(sign: int) -> tuple[Quantity, ...]:
    """List the numbers that always belong together; `sign` is -1 where less is better."""
    down = sign > 0

    def column(title: str, meaning: str) -> Column:
        return Column(title, meaning, descending=down)

    less = Column("std", "standard deviation over clients", descending=False)
    return (
        Quantity("mean", column("mean", "mean over clients: each counts once"), number, sign),
        Quantity(
            "seed_std", Column("± seed", "standard deviation over seeds", descending=False), number
        ),
        Quantity(
            "weighted_mean",
            column("weighted", "mean weighted by a client's number of examples"),
            number,
            sign,
        ),
        Quantity("std", less, number, -1),
        Quantity("decile", column("decile", "nine of ten clients do better"), number, sign),
        Quantity("worst", column("worst", "the worst client"), number, sign),
        Quantity(
            "harmed_vs_local",
            Column("harmed vs Local", "clients that do worse than alone", descending=False),
            share,
        ),
        Quantity(
            "harmed_vs_fedavg_ft",
            Column("harmed vs FedAvg+", "clients that do worse than fine-tuned", descending=False),
            share,
        ),
    )


def _seconds(value: float) -> str:
    return f"{value:.1f}"


COSTS = (
    Quantity("bytes_up", Column("sent up", "by all clients", descending=False), size),
    Quantity("bytes_down", Column("sent down", "to all clients", descending=False), size),
    Quantity(
        "gradients",
        Column("gradients", "of single examples, while training", descending=False),
        amount,
    ),
    Quantity(
        "seconds",
        Column("seconds", "of training, without evaluation", descending=False),
        _seconds,
    ),
    Quantity(
        "private_bytes",
        Column("kept per client", "what a client stores between rounds", descending=False),
        size,
    ),
)
