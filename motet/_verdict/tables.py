"""Plain-text tables of a comparison, at most 80 columns wide."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import Any

from motet._core.points import explained, named
from motet._core.text import amount, gain, number, plural, share, size, title_of, unit
from motet._core.visible_text import visible
from motet._engine.results import Row
from motet._verdict.contributions import contributions_text
from motet._verdict.further_metrics import metric_columns, undefined_notes
from motet._verdict.results import Results
from motet._verdict.site_table import site_table
from motet._verdict.statistics import PairedDifference
from motet._verdict.text_tables import LABEL, WIDTH, aligned, shorten
from motet._verdict.verdict import Verdict, verdict

BETTER, WORSE = "▲", "▼"
PROBABLY_BETTER, PROBABLY_WORSE = "△", "▽"
BETTER_IN_RUNS, WORSE_IN_RUNS = "↑", "↓"
UNKNOWN = " "
DIVERGED = "!"
BEST = "*"


def comparison_text(comparison: Results) -> str:
    """Return a comparison as text: the sites, scores, differences, costs, verdict and notes."""
    found = verdict(comparison)
    parts = [_verdict(found)]
    if comparison.rows:
        summaries = [comparison.summary(label) for label in comparison.labels]
        scores = _scores(comparison, summaries)
        costs = _costs(comparison, summaries)
        sites = site_table(comparison, found)
        metrics = _metrics(comparison)
        differences = _differences(comparison, found)
        left_out = contributions_text(comparison)
        shown = [_title(comparison), sites, scores, metrics, differences, left_out, costs]
        parts = [*shown, *parts]
        parts.append(_notes(comparison, found))
    return "\n\n".join(part for part in parts if part)


def _title(comparison: Results) -> str:
    first = comparison.rows[0].evaluation
    better = "higher" if first.higher_is_better else "lower"
    seeds = ", ".join(str(seed) for seed in comparison.seeds)
    one_round = len(_chosen_rounds(comparison.rows)) == 1
    conditions = (
        f"{named(comparison.points)}, "
        f"{f'round {first.round}' if one_round else 'rounds as listed below'}, "
        f"{comparison.counted_clients()}, "
        f"{visible(comparison.data)}, cohort {comparison.cohort}, "
        f"{'seed' if len(comparison.seeds) == 1 else 'mean of seeds'} {seeds}"
    )
    return (
        f"{title_of(first.metric)} on each client's own {first.split} data ({better} is "
        f"better)\n{fill(conditions, WIDTH)}"
    )


# -- scores ------------------------------------------------------------------


def _scores(comparison: Results, summaries: Sequence[dict[str, Any]]) -> str:
    columns = ["mean", "± seed", "weighted", "std", "decile", "worst", "<local", "<FedAvg+"]
    names = ("seed_std", "weighted_mean", "std", "decile", "worst")
    trouble = {s["label"] for s in summaries if comparison.has_trouble(s["label"])}
    marks = {s["label"]: DIVERGED if s["label"] in trouble else " " for s in summaries}
    rows = [
        [
            shorten(s["label"], LABEL - bool(trouble)),
            number(s["mean"]) + (marks[s["label"]] if trouble else ""),
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


def _differences(comparison: Results, found: Verdict) -> str:
    """Compare every method with plain fine-tuning and training alone; "" if both are missing."""
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
        BETTER_IN_RUNS: difference.in_runs and difference.mean > 0,
        WORSE_IN_RUNS: difference.in_runs and difference.mean < 0,
    }
    return next((mark for mark, holds in marks.items() if holds), UNKNOWN)


def _metrics(comparison: Results) -> str:
    """Show the mean of every metric; "" if there is only one."""
    columns = metric_columns(comparison)
    if not columns:
        return ""
    header = ["mean over clients", *(_fitted(column.metric) for column in columns)]
    rows = [
        [
            shorten(label),
            *(number(c.means[label]) + (BEST if label in c.best else " ") for c in columns),
        ]
        for label in comparison.labels
    ]
    arrows = ["", *("higher " if c.higher_is_better else "lower " for c in columns)]
    notes = [f"{BEST} best mean. {columns[0].metric} decides.", *undefined_notes(columns)]
    table = aligned(header, [["better:", *arrows[1:]], *rows])
    return "\n".join([table, *(fill(note, WIDTH) for note in notes)])


def _fitted(name: str) -> str:
    """Shorten the name of an own metric to what tells it from others."""
    return shorten(name.rpartition(":")[2], 20)


# -- costs, verdict and notes --------------------------------------------------


def _costs(comparison: Results, summaries: Sequence[dict[str, Any]]) -> str:
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
    if len(_chosen_rounds(comparison.rows)) == 1:  # the title names it
        table = [row[:-1] for row in table]
    return aligned(table[0], table[1:])


def _chosen(rows: Sequence[Row]) -> str:
    rounds = _chosen_rounds(rows)
    return str(rounds[0]) if len(rounds) == 1 else f"{rounds[0]}-{rounds[-1]}"


def _chosen_rounds(rows: Sequence[Row]) -> list[int]:
    return sorted({row.evaluation.round for row in rows})


def _verdict(found: Verdict) -> str:
    in_title = 1 if found.best else 0  # the title already has the setup
    bullets = (
        fill(visible(sentence), WIDTH, initial_indent="- ", subsequent_indent="  ")
        for sentence in found.sentences[in_title:]
        if sentence != found.answer  # it is above the sites
    )
    return "\n".join(["Verdict", *bullets])


def _looks(comparison: Results) -> list[str]:
    """Say what looks at validation data cost, where serving clients takes gradients."""
    shares = {}
    for label in comparison.labels:
        taken = comparison.mean(label, lambda row: row.cost.look_gradients)
        training = comparison.mean(label, lambda row: row.cost.gradients)
        if taken:
            shares[label] = f"{label} {share(taken / training) if training else amount(taken)}"
    if not shares:
        return []
    return [
        "gradients: those of training. Scoring validation data adapts models to clients, too, "
        f"which took, as a share of training: {', '.join(shares.values())}."
    ]


def _notes(comparison: Results, found: Verdict) -> str:
    text = [
        explained(comparison.points),
        "decile: nine in ten clients score better. <local, <FedAvg+: share of clients that score "
        "worse than with training alone, and than with the fine-tuned global model.",
        f"{BETTER} better, {WORSE} worse, {PROBABLY_BETTER} {PROBABLY_WORSE} probably: with other "
        "clients and seeds of the same kind, corrected for "
        f"{plural(found.comparisons, 'comparison')}; clients count as independent of each other, "
        f"which those of one group may not be. {BETTER_IN_RUNS} {WORSE_IN_RUNS} in these "
        "runs: seeds are too few to say more. No mark: no clear difference.",
        "The split, the cohorts and the initial weights are the same for every method.",
    ]
    if any(comparison.has_trouble(label) for label in comparison.labels):
        text.append(
            f"{DIVERGED} training diverged in part, as the verdict says: predictions that are not "
            "finite count as wrong, and clients keep their last finite state."
        )
    text += _looks(comparison)
    if comparison.added:
        text.append(f"Added for reference: {', '.join(comparison.added)}.")
    return "\n".join(fill(note, WIDTH) for note in text)
