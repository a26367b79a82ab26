"""The text of a page: one part per comparison, with its verdict, tables and warnings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from motet._core.points import explained, named
from motet._core.text import plural, title_of
from motet._core.version import __version__
from motet._verdict.caveats import diverged
from motet._verdict.findings import find
from motet._verdict.results import Results
from motet._verdict.verdict import Verdict, verdict
from motet.report._chart_data import chart_data
from motet.report._site_tables import contribution_table, site_table
from motet.report._tables import (
    Table,
    cost_table,
    metric_table,
    privacy_table,
    score_table,
    tuned_table,
)

MOST_REASONS = 5
NAMES = {"tries": "trials"}  # keys of a search as shown on the page


@dataclass(frozen=True)
class Remark:
    """A sentence about one method, or about all of them."""

    label: str
    sentence: str


@dataclass(frozen=True)
class Part:
    """Everything that the template shows of one comparison.

    Attributes:
        measured: The setup: metric, clients, data, seeds.
        answer: The one sentence for a reader in a hurry.
        verdict: The rest of the verdict, the most important sentence first.
        charts: The data of the charts, as JSON values.
        figures: Names of the charts that this comparison has data for.
        made: How the numbers were made, as terms and values.
    """

    title: str
    measured: str
    answer: str
    verdict: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    about: str
    scores: Table | None
    metrics: Table | None
    sites: Table | None
    contributions: Table | None
    costs: Table | None
    tuned: Table | None
    privacy: Table | None
    warnings: tuple[Remark, ...]
    failures: tuple[Remark, ...]
    made: tuple[tuple[str, str], ...]
    figures: frozenset[str]
    charts: dict[str, Any]


def page_part(comparison: Results) -> Part:
    """Return the part of a page for one comparison."""
    found, scored = verdict(comparison), bool(comparison.rows)
    return Part(
        title=_title(comparison),
        measured=found.sentences[0] if found.sentences else "",
        answer=_verdict(comparison, found)[0],
        verdict=_verdict(comparison, found)[1:],
        facts=_facts(comparison),
        about=_about(comparison) if scored else "",
        scores=score_table(comparison, found) if scored else None,
        metrics=metric_table(comparison),
        sites=site_table(comparison, found),
        contributions=contribution_table(comparison),
        costs=cost_table(comparison) if scored else None,
        tuned=tuned_table(comparison),
        privacy=privacy_table(comparison),
        warnings=_warnings(comparison),
        failures=_failures(comparison),
        made=_made(comparison),
        figures=_figures(comparison, found),
        charts=chart_data(comparison, found),
    )


def _title(comparison: Results) -> str:
    if len(comparison.labels) == 1:
        return f"{comparison.labels[0]} on {comparison.data}"
    return f"{plural(len(comparison.labels), 'method')} on {comparison.data}"


def _verdict(comparison: Results, found: Verdict) -> tuple[str, ...]:
    """Return the verdict; for a single method, its scores."""
    if not comparison.rows:
        return ("No run produced a result.",)
    if len(comparison.labels) > 1:
        return found.sentences[1:]
    summary = comparison.summary(comparison.labels[0])
    return (
        f"{summary['label']} reaches {summary['mean']:.3f} on average over clients, and "
        f"{summary['worst']:.3f} for the worst client.",
        *diverged(find(comparison)),
    )


def _facts(comparison: Results) -> tuple[tuple[str, str], ...]:
    counts = {
        "methods": len(comparison.labels),
        "rounds": comparison.rounds,
        "seeds": len(comparison.seeds),
    }
    clients, _, word = comparison.counted_clients().rpartition(" ")
    return (
        (word, clients),
        *(
            (name if count != 1 else name.removesuffix("s"), f"{count:,}")
            for name, count in counts.items()
        ),
    )


def _about(comparison: Results) -> str:
    """Describe the numbers of the score table."""
    first = comparison.rows[0].evaluation
    better = "higher" if first.higher_is_better else "lower"
    metric = first.metric.upper() if first.metric == "rmse" else title_of(first.metric)
    bold = " Bold: best of the column." if len(comparison.labels) > 1 else ""
    return (
        f"{metric} on each client's own {first.split} data ({better} is better), "
        f"{named(comparison.points)}, {_round(comparison)}; {comparison.counted_clients()}; "
        f"{_seeds(comparison)}. {explained(comparison.points)}{bold}"
    )


def _round(comparison: Results) -> str:
    chosen = sorted({row.chosen_round for row in comparison.rows})
    if comparison.choose == "validation":
        return f"rounds chosen on validation data ({chosen[0]} to {chosen[-1]})"
    return f"round {chosen[0]}" if len(chosen) == 1 else f"last rounds {chosen[0]} to {chosen[-1]}"


def _seeds(comparison: Results) -> str:
    listed = ", ".join(str(seed) for seed in comparison.seeds)
    return f"seed {listed}" if len(comparison.seeds) == 1 else f"mean of seeds {listed}"


def _warnings(comparison: Results) -> tuple[Remark, ...]:
    first = comparison.rows[0].warnings if len(comparison.labels) > 1 else ()
    common = [w for w in first if all(w in row.warnings for row in comparison.rows)]
    remarks = [Remark("all methods", warning) for warning in common]
    remarks += [
        Remark(row.label, warning)
        for row in comparison.rows
        for warning in row.warnings
        if warning not in common
    ]
    remarks += [
        Remark(f"{row.label}, seed {row.seed}", _fault(name, value))
        for row in comparison.rows
        for name, value in row.faults.items()
    ]
    return tuple(dict.fromkeys(remarks))


def _fault(name: str, value: Any) -> str:
    """Describe a fault during training: a count, or reasons by client."""
    if isinstance(value, Mapping):
        listed = [f"{client}: {reason}" for client, reason in value.items()]
        more = f"; and {len(listed) - MOST_REASONS} more" if len(listed) > MOST_REASONS else ""
        value = "; ".join(listed[:MOST_REASONS]) + more
    return f"{name.replace('_', ' ')}: {value}"


def _failures(comparison: Results) -> tuple[Remark, ...]:
    return tuple(
        Remark(f"{failure.label}, seed {failure.seed}", failure.reason)
        for failure in comparison.failures
    )


def _made(comparison: Results) -> tuple[tuple[str, str], ...]:
    cohort = comparison.cohort
    facts = {
        "Data": comparison.data,
        "Split": comparison.split,
        "Seeds": ", ".join(str(seed) for seed in comparison.seeds),
        "Rounds": str(comparison.rounds),
        "Cohort": f"{cohort:.0%} of the clients" if isinstance(cohort, float) else str(cohort),
        "Reported round": _round(comparison) if comparison.rows else "",
        "Budget": ", ".join(f"{key} {value:g}" for key, value in comparison.budget.items()),
        "Search": ", ".join(f"{NAMES.get(k, k)} {v}" for k, v in comparison.search.items()),
        "Added for reference": ", ".join(comparison.added),
        "Trained together": ", ".join(_shared(comparison)),
        "Version": f"Motet {__version__}",
    }
    return tuple((term, value) for term, value in facts.items() if value)


def _shared(comparison: Results) -> list[str]:
    """List the methods that shared the training run of another method."""
    pairs = {(row.label, row.shared_with) for row in comparison.rows if row.shared_with}
    return [f"{label} with {other}" for label, other in sorted(pairs)]


def _figures(comparison: Results, found: Verdict) -> frozenset[str]:
    """Return the names of the charts that have data."""
    summary, several = comparison.federation, len(comparison.labels) > 1
    has = {
        "forest": bool(found.sites),
        "differences": any(d.label != d.reference for d in found.differences),
        "spread": bool(comparison.rows),
        "curves": any(len(row.curve) > 1 for row in comparison.rows),
        "gains": several and any(comparison.label_of(name) for name in ("local", "fedavg-ft")),
        "sizes": bool(comparison.rows) and bool(summary.sizes),
        "costs": several,
        "labels": bool(summary.histograms),
        "emd": bool(summary.emd),
    }
    return frozenset(name for name, present in has.items() if present)
