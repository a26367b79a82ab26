"""The tables of the page: every cell has a text to show and a value to sort by."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from motet._core.text import amount, gain, number, share, size, unit
from motet._verdict.further_metrics import metric_columns
from motet._verdict.results import Results
from motet._verdict.statistics import PairedDifference
from motet._verdict.verdict import Verdict, grade
from motet.report._chart_data import spent_by_client

UNKNOWN = "\N{EN DASH}"
GAINS_AT = 2  # column: after the method and its mean


@dataclass(frozen=True)
class Cell:
    """A text, the value to sort by (None sorts last), and whether it is the best of its column."""

    text: str
    value: float | str | None
    best: bool = False
    remark: str = ""


@dataclass(frozen=True)
class Column:
    """A column's heading and meaning."""

    title: str
    meaning: str
    numeric: bool = True
    descending: bool = True  # sort order after the first click


ASCENDING = partial(Column, descending=False)
METHOD = Column("method", "", numeric=False, descending=False)


@dataclass(frozen=True)
class Table:
    """Columns and rows, sorted by one of the columns."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    sorted_by: int = -1  # no column
    about: str = ""


@dataclass(frozen=True)
class Quantity:
    """A number of a method: its name in the summary, its format, and which direction is better."""

    name: str
    column: Column
    text: Callable[[float], str]
    better: int = 0  # 1: higher is better, -1: lower is better, 0: neither


def score_table(comparison: Results, found: Verdict) -> Table:
    """Return the scores of every method and what they gain, the best method first."""
    summaries = [_compared(comparison, label) for label in comparison.labels]
    sign = 1 if comparison.rows[0].evaluation.higher_is_better else -1
    summaries.sort(key=lambda summary: (_unknown(summary["mean"]), -sign * summary["mean"]))
    quantities = [q for q in _scores(sign) if _worth_showing(q, comparison, summaries)]
    table = _table(comparison, summaries, quantities, sorted_by=1)
    references = {"Local": "local", "FedAvg+": "fedavg-ft"}
    for name, method in references.items():
        label = comparison.label_of(method)
        if label is not None and len(comparison.labels) > 1:
            table = _with_gains(table, comparison, found, (name, label))
    return table


def _with_gains(
    table: Table, comparison: Results, found: Verdict, reference: tuple[str, str]
) -> Table:
    """Add a column: the mean gain over a reference, its mark and its interval."""
    name, label = reference
    metric = comparison.rows[0].evaluation.metric
    meaning = (
        f"mean gain over {label} in {unit(metric)} with its 95% interval; ▲ better, ▼ worse, "
        "△ ▽ probably, ↑ ↓ in these runs"
    )
    cells = [_gain_cell(found.against(str(row[0].value), label), metric) for row in table.rows]
    # Beside the mean, before the numbers that fewer readers need.
    place = GAINS_AT + sum(column.title.startswith("vs ") for column in table.columns)
    columns = list(table.columns)
    columns.insert(place, Column(f"vs {name}", meaning))
    rows = tuple(
        (*row[:place], cell, *row[place:]) for row, cell in zip(table.rows, cells, strict=True)
    )
    return replace(table, columns=tuple(columns), rows=rows)


def _gain_cell(difference: PairedDifference | None, metric: str) -> Cell:
    if difference is None or math.isnan(difference.mean):
        return Cell(UNKNOWN, None)
    text = f"{gain(difference.mean, metric)}{_marks(difference)}"
    if not math.isnan(difference.low):
        low, high = gain(difference.low, metric), gain(difference.high, metric)
        text = f"{text} [{low}, {high}]"
    return Cell(text, difference.mean)


def _marks(difference: PairedDifference) -> str:
    marks = {"sure": "▲▼", "probable": "△▽", "in these runs": "↑↓"}.get(grade(difference))
    return "" if marks is None else f" {marks[difference.mean < 0]}"


def _compared(comparison: Results, label: str) -> dict[str, Any]:
    """Summarize a method; omit shares of harmed clients without scores or against itself."""
    summary = comparison.summary(label)
    for name, key in (("local", "harmed_vs_local"), ("fedavg-ft", "harmed_vs_fedavg_ft")):
        if comparison.label_of(name) == label or _unknown(summary["mean"]):
            summary[key] = None
    return summary


def metric_table(comparison: Results) -> Table | None:
    """Return the mean of every metric for every method; None if there is only one metric."""
    found = metric_columns(comparison)
    if not found:
        return None
    columns = tuple(
        Column(
            column.metric,
            f"{'higher' if column.higher_is_better else 'lower'} is better"
            + (
                ""
                if column.defined == column.clients
                else f"; {column.defined} of {column.clients} clients"
            ),
            descending=column.higher_is_better,
        )
        for column in found
    )
    rows = tuple(
        (
            Cell(label, label),
            *(
                Cell(
                    UNKNOWN if math.isnan(column.means[label]) else number(column.means[label]),
                    None if math.isnan(column.means[label]) else column.means[label],
                    best=label in column.best and len(comparison.labels) > 1,
                )
                for column in found
            ),
        )
        for label in comparison.labels
    )
    return Table((METHOD, *columns), rows)


def cost_table(comparison: Results) -> Table:
    """Return the costs of every method."""
    summaries = [comparison.summary(label) for label in comparison.labels]
    quantities = [q for q in COSTS if _worth_showing(q, comparison, summaries)]
    return _table(comparison, summaries, quantities)


def tuned_table(comparison: Results) -> Table | None:
    """Return the hyperparameters that a search chose; None without a search."""
    chosen = {row.label: row.tuned for row in comparison.rows if row.tuned}
    rows = [
        (Cell(label, label), Cell(name, name), Cell(str(value), str(value)))
        for label, tuned in chosen.items()
        for name, value in tuned.items()
    ]
    columns = (
        METHOD,
        Column("hyperparameter", "", numeric=False, descending=False),
        Column("chosen", "the value with the best validation score", numeric=False),
    )
    return Table(columns, tuple(rows)) if rows else None


def privacy_table(comparison: Results) -> Table | None:
    """Return the privacy spent by each run; None if no run tracks it."""
    rows = [
        _privacy_cells(row.label, row.seed, row.privacy, list(spent_by_client(row).values()))
        for row in comparison.rows
        if row.privacy
    ]
    columns = (
        METHOD,
        ASCENDING("seed", ""),
        Column("largest epsilon", "of the least protected client"),
        Column("median epsilon", "half of the clients are better protected"),
        Column("delta", "probability that the guarantee fails"),
        Column("protects", "what cannot be detected", numeric=False, descending=False),
    )
    return Table(columns, tuple(rows)) if rows else None


def _privacy_cells(
    label: str, seed: int, privacy: Mapping[str, Any], spent: Sequence[float]
) -> tuple[Cell, ...]:
    # A ledger for all clients together has a single epsilon.
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
    comparison: Results,
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
    columns = (METHOD, *(q.column for q in quantities))
    return Table(columns, tuple(rows), sorted_by)


def _method_cell(comparison: Results, summary: Mapping[str, Any]) -> Cell:
    label = summary["label"]
    missing = len(comparison.seeds) - len(comparison.of(label))
    remarks = ["reference"] if summary["added"] else []
    if missing:
        remarks.append(f"{missing} of {len(comparison.seeds)} seeds missing")
    if summary["diverged"]:
        total = len(comparison.of(label)[0].evaluation.rows)
        remarks.append(f"{summary['diverged']} of {total} clients diverged")
    elif comparison.has_trouble(label):
        remarks.append("training diverged in part")
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
    quantity: Quantity, comparison: Results, summaries: Sequence[Mapping[str, Any]]
) -> bool:
    """Return whether a quantity has values; one seed has no spread over seeds."""
    if quantity.name == "seed_std" and len(comparison.seeds) == 1:
        return False
    return any(not _unknown(summary[quantity.name]) for summary in summaries)


def _unknown(value: float | None) -> bool:
    return value is None or math.isnan(value)


def _scores(sign: int) -> tuple[Quantity, ...]:
    """List the score columns; `sign` is -1 if lower is better."""
    score = partial(Column, descending=sign > 0)
    weighted = "mean weighted by each client's number of examples"
    alone = "clients that score worse than with training alone"
    tuned = "clients that score worse than with fine-tuning"
    return (
        Quantity("mean", score("mean", "mean over clients, all counted equally"), number, sign),
        Quantity("seed_std", ASCENDING("± seed", "standard deviation over seeds"), number),
        Quantity("weighted_mean", score("weighted", weighted), number, sign),
        Quantity("std", ASCENDING("std", "standard deviation over clients"), number, -1),
        Quantity("decile", score("decile", "nine in ten clients score better"), number, sign),
        Quantity("worst", score("worst", "the worst client"), number, sign),
        Quantity("harmed_vs_local", ASCENDING("harmed vs Local", alone), share),
        Quantity("harmed_vs_fedavg_ft", ASCENDING("harmed vs FedAvg+", tuned), share),
    )


def _seconds(value: float) -> str:
    return f"{value:.1f}"


COSTS = (
    Quantity("bytes_up", ASCENDING("sent up", "by all clients"), size),
    Quantity("bytes_down", ASCENDING("sent down", "to all clients"), size),
    Quantity(
        "gradients", ASCENDING("gradients", "single-example gradients during training"), amount
    ),
    Quantity("seconds", ASCENDING("seconds", "training time, without evaluation"), _seconds),
    Quantity(
        "private_bytes", ASCENDING("kept per client", "what a client stores between rounds"), size
    ),
)
