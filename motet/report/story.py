"""The words of a page: one part per comparison, in the order a reader asks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from motet.comparing.comparison import Comparison
from motet.judging.phrases import plural
from motet.judging.verdict import Verdict
from motet.report.contents import chart_data, known_clients
from motet.report.tabulating import (
    Table,
    cost_table,
    privacy_table,
    score_table,
    tuned_table,
)

MOST_REASONS = 5


@dataclass(frozen=True)
class Remark:
    """A sentence about a method."""

    label: str
    sentence: str


@dataclass(frozen=True)
class Part:
    """Everything the template says about one comparison.

    Attributes:
        measured: What the numbers are about.
        verdict: What they say, the most important sentence first.
        charts: What the scripts draw, as values for JSON.
        figures: Names of the charts that this comparison has data for.
        made: How the numbers came about: terms and values.
    """

    title: str
    measured: str
    verdict: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    about: str
    scores: Table | None
    costs: Table | None
    tuned: Table | None
    privacy: Table | None
    warnings: tuple[Remark, ...]
    failures: tuple[Remark, ...]
    made: tuple[tuple[str, str], ...]
    figures: frozenset[str]
    charts: dict[str, Any]


def tell(comparison: Comparison) -> Part:
    """Put into words what a comparison found."""
    found, scored = comparison.verdict(), bool(comparison.rows)
    return Part(
        title=_title(comparison),
        measured=found.sentences[0] if found.sentences else "",
        verdict=_said(comparison, found),
        facts=_facts(comparison),
        about=_about(comparison) if scored else "",
        scores=score_table(comparison) if scored else None,
        costs=cost_table(comparison) if scored else None,
        tuned=tuned_table(comparison),
        privacy=privacy_table(comparison),
        warnings=_warnings(comparison),
        failures=_failures(comparison),
        made=_made(comparison),
        figures=_figures(comparison, found),
        charts=chart_data(comparison, found),
    )


def _title(comparison: Comparison) -> str:
    if len(comparison.labels) == 1:
        return f"{comparison.labels[0]} on {comparison.data}"
    return f"{plural(len(comparison.labels), 'method')} on {comparison.data}"


def _said(comparison: Comparison, found: Verdict) -> tuple[str, ...]:
    """Judge, where there is something to compare; else say what one method reached."""
    if not comparison.rows:
        return ("No run gave a result.",)
    if len(comparison.labels) > 1:
        return found.sentences[1:]
    summary = comparison.summary(comparison.labels[0])
    return (
        f"{summary['label']} reaches {summary['mean']:.3f} on average over clients, and "
        f"{summary['worst']:.3f} for the worst client.",
    )


def _facts(comparison: Comparison) -> tuple[tuple[str, str], ...]:
    counts = {
        "clients": len(known_clients(comparison)),
        "methods": len(comparison.labels),
        "rounds": comparison.rounds,
        "seeds": len(comparison.seeds),
    }
    return tuple(
        (name if count != 1 else name.removesuffix("s"), f"{count:,}")
        for name, count in counts.items()
    )


def _about(comparison: Comparison) -> str:
    """Say what the numbers of the table are."""
    first = comparison.rows[0].evaluation
    better = "higher" if first.higher_is_better else "lower"
    metric = first.metric.upper() if first.metric == "rmse" else first.metric.capitalize()
    bold = " Bold: best of the column." if len(comparison.labels) > 1 else ""
    return (
        f"{metric} on each client's own {first.split} data ({better} is better), {first.point}, "
        f"{_round(comparison)}; {plural(len(first.rows), 'client')}; {_seeds(comparison)}.{bold}"
    )


def _round(comparison: Comparison) -> str:
    chosen = sorted({row.chosen_round for row in comparison.rows})
    if comparison.choose == "validation":
        return f"rounds chosen on validation data ({chosen[0]} to {chosen[-1]})"
    return f"round {chosen[0]}" if len(chosen) == 1 else f"last rounds {chosen[0]} to {chosen[-1]}"


def _seeds(comparison: Comparison) -> str:
    listed = ", ".join(str(seed) for seed in comparison.seeds)
    return f"seed {listed}" if len(comparison.seeds) == 1 else f"mean of seeds {listed}"


def _warnings(comparison: Comparison) -> tuple[Remark, ...]:
    told = [Remark(row.label, warning) for row in comparison.rows for warning in row.warnings]
    told += [
        Remark(f"{row.label}, seed {row.seed}", _fault(name, value))
        for row in comparison.rows
        for name, value in row.faults.items()
    ]
    return tuple(dict.fromkeys(told))


def _fault(name: str, value: Any) -> str:
    """Write what went wrong on the way: a count, or reasons by client."""
    if isinstance(value, Mapping):
        listed = [f"{client}: {reason}" for client, reason in value.items()]
        more = f"; and {len(listed) - MOST_REASONS} more" if len(listed) > MOST_REASONS else ""
        value = "; ".join(listed[:MOST_REASONS]) + more
    return f"{name.replace('_', ' ')}: {value}"


def _failures(comparison: Comparison) -> tuple[Remark, ...]:
    return tuple(
        Remark(f"{failure.label}, seed {failure.seed}", failure.reason)
        for failure in comparison.failures
    )


def _made(comparison: Comparison) -> tuple[tuple[str, str], ...]:
    from motet import __version__

    cohort = comparison.cohort
    facts = {
        "Data": comparison.data,
        "Split": comparison.split,
        "Seeds": ", ".join(str(seed) for seed in comparison.seeds),
        "Rounds": str(comparison.rounds),
        "Cohort": f"{cohort:.0%} of the clients" if isinstance(cohort, float) else str(cohort),
        "Reported round": _round(comparison) if comparison.rows else "",
        "Budget": ", ".join(f"{key} {value:g}" for key, value in comparison.budget.items()),
        "Search": ", ".join(f"{key} {value}" for key, value in comparison.search.items()),
        "Added for reference": ", ".join(comparison.added),
        "Trained together": ", ".join(_shared(comparison)),
        "Version": f"Motet {__version__}",
    }
    return tuple((term, value) for term, value in facts.items() if value)


def _shared(comparison: Comparison) -> list[str]:
    """Name the methods whose training was another one's, too."""
    pairs = {(row.label, row.shared_with) for row in comparison.rows if row.shared_with}
    return [f"{label} with {other}" for label, other in sorted(pairs)]


def _figures(comparison: Comparison, found: Verdict) -> frozenset[str]:
    """Name the charts that have something to show."""
    picture, several = comparison.federation, len(comparison.labels) > 1
    has = {
        "differences": any(d.label != d.reference for d in found.differences),
        "spread": bool(comparison.rows),
        "curves": any(len(row.curve) > 1 for row in comparison.rows),
        "gains": several and any(comparison.label_of(name) for name in ("local", "fedavg-ft")),
        "sizes": bool(comparison.rows) and bool(picture.sizes),
        "costs": several,
        "labels": bool(picture.histograms),
        "emd": bool(picture.emd),
    }
    return frozenset(name for name, present in has.items() if present)
