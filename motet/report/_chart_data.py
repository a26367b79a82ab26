"""The data of the charts: a comparison as JSON values, one array per quantity.

Arrays follow the order of the part's list of clients; a client without a score has null.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from motet._core.studies import Study
from motet._engine.results import Row
from motet._verdict.example_scores import POINTS
from motet._verdict.findings import REFERENCES
from motet._verdict.results import Results
from motet._verdict.statistics import PairedDifference
from motet._verdict.verdict import Verdict, grade

MOST_CELLS = 400_000  # over all frames of a matrix: more would make the page slow to load


def chart_data(comparison: Results, verdict: Verdict) -> dict[str, Any]:
    """Return the data of all charts of a comparison."""
    clients = known_clients(comparison)
    return {
        "data": comparison.data,
        **_about(comparison),
        "rounds": comparison.rounds,
        "references": {name: comparison.label_of(name) for name in REFERENCES},
        "clients": clients,
        "examples": _examples(comparison, clients),
        "federation": _federation(comparison, clients),
        "methods": [_method(comparison, label, clients) for label in comparison.labels],
        "differences": [_difference(found) for found in verdict.differences],
        "seeds": len(comparison.seeds),
        "main": verdict.main,
        "margin": _margin(verdict),
        "sites": _sites(verdict),
        "studies": [*_studies(comparison), *_privacy(comparison)],
    }


def known_clients(comparison: Results) -> list[str]:
    """List the clients of the federation and of the scores, without duplicates."""
    scored = {score.client for row in comparison.rows for score in row.evaluation.rows}
    return sorted(scored | set(comparison.federation.sizes))


def _about(comparison: Results) -> dict[str, Any]:
    if not comparison.rows:  # every run failed
        return {}
    first = comparison.rows[0].evaluation
    return {
        "metric": first.metric,
        "higher": first.higher_is_better,
        "split": first.split,
    }


def _examples(comparison: Results, clients: Sequence[str]) -> list[int | None]:
    """Return each client's number of scored examples, which is the same for every method."""
    examples = {s.client: s.examples for row in comparison.rows for s in row.evaluation.rows}
    return [examples.get(client) for client in clients]


def _federation(comparison: Results, clients: Sequence[str]) -> dict[str, Any]:
    summary = comparison.federation
    splits = ("train", "val", "test")
    return {
        "labels": summary.labels,
        **{s: [summary.sizes.get(c, {}).get(s) for c in clients] for s in splits},
        "histograms": [summary.histograms.get(c) for c in clients] if summary.histograms else [],
        "emd": [summary.emd.get(c) for c in clients] if summary.emd else [],
    }


def _method(comparison: Results, label: str, clients: Sequence[str]) -> dict[str, Any]:
    rows = comparison.of(label)
    return {
        "label": label,
        "method": rows[0].evaluation.method,
        "point": rows[0].evaluation.point,
        "mean": comparison.mean(label, lambda row: row.evaluation.mean),
        "cost": {
            "bytes": comparison.mean(label, lambda row: row.cost.bytes_up + row.cost.bytes_down),
            "gradients": comparison.mean(label, lambda row: row.cost.gradients),
            "seconds": comparison.mean(label, lambda row: row.cost.seconds),
        },
        "runs": [_run(row, clients) for row in rows],
    }


def _run(row: Row, clients: Sequence[str]) -> dict[str, Any]:
    scores = {score.client: score for score in row.evaluation.rows}
    found = [scores.get(client) for client in clients]
    return {
        "seed": row.seed,
        "round": row.chosen_round,
        "values": [score and score.value for score in found],
        "losses": [score and score.loss for score in found],
        "diverged": list(row.evaluation.diverged),
        "curve": _columns([asdict(look) for look in row.curve]),
    }


def _difference(found: PairedDifference) -> dict[str, Any]:
    names = ("label", "reference", "mean", "low", "high", "p_value", "corrected")
    counts = ("clients_better", "clients_worse", "clients")
    return {name: getattr(found, name) for name in (*names, *counts)} | {"grade": grade(found)}


SITE = (
    "site",
    "examples",
    "gain",
    "low",
    "high",
    "p_value",
    "state",
    "sure",
    "in_runs",
    "small",
)


def _sites(verdict: Verdict) -> list[dict[str, Any]]:
    """Return the verdicts on sites, one entry per pair of methods, with rows as in `SITE`."""
    pairs: dict[tuple[str, str], list[list[Any]]] = {}
    for site in verdict.sites:
        row = [getattr(site, name) for name in SITE]
        pairs.setdefault((site.label, site.reference), []).append(row)
    return [{"label": a, "reference": b, "rows": rows} for (a, b), rows in pairs.items()]


def _margin(verdict: Verdict) -> float:
    sites = verdict.of_sites(*verdict.main) if verdict.main else ()
    return sites[0].margin if sites else POINTS


def _columns(records: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Turn a list of records into a record of lists."""
    return {key: [record[key] for record in records] for key in (records[0] if records else ())}


def _studies(comparison: Results) -> list[dict[str, Any]]:
    """Merge the seeds of a study into one figure with a seed selector."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in comparison.rows:
        for study in row.studies:
            figure = found.setdefault(
                (row.label, study.kind, study.title),
                {
                    "label": row.label,
                    "kind": study.kind,
                    "privacy": False,
                    "title": study.title,
                    "note": study.note,
                    "seeds": [],
                    "data": [],
                },
            )
            figure["seeds"].append(row.seed)
            figure["data"].append(_thinned(study))
    return list(found.values())


def _thinned(study: Study) -> Mapping[str, Any]:
    """Drop frames of a matrix that is too large for a page; the last one stays."""
    if study.kind != "matrix":
        return study.data
    frames = study.data["frames"]
    cells = max(len(study.data["names"]) ** 2, 1)
    return {**study.data, "frames": evenly(frames, max(MOST_CELLS // cells, 1))}


def evenly(items: Sequence[Any], most: int) -> list[Any]:
    """Pick at most `most` items, evenly spaced and including the last.

    >>> evenly(range(10), 4), evenly(range(3), 4), evenly(range(3), 1)
    ([0, 3, 6, 9], [0, 1, 2], [2])
    """
    if len(items) <= most:
        return list(items)
    step = (len(items) - 1) / max(most - 1, 1)
    return [items[len(items) - 1 - round(step * place)] for place in range(most)][::-1]


def _privacy(comparison: Results) -> Iterable[dict[str, Any]]:
    """Yield each client's privacy cost as a per-client study."""
    for label in comparison.labels:
        rows = [row for row in comparison.of(label) if spent_by_client(row)]
        if rows:
            yield {
                "label": label,
                "kind": "per_client",
                "privacy": True,
                "title": "Privacy spent",
                "note": privacy_note(rows[0].privacy),
                "seeds": [row.seed for row in rows],
                "data": [{"quantity": "epsilon", "values": spent_by_client(row)} for row in rows],
            }


def spent_by_client(row: Row) -> Mapping[str, float]:
    """Return each client's epsilon; empty if the run did not track it."""
    epsilon = row.privacy.get("epsilon")
    return epsilon if isinstance(epsilon, Mapping) else {}


def privacy_note(privacy: Mapping[str, Any]) -> str:
    """Explain a client's epsilon."""
    return (
        f"Differential privacy of {privacy.get('protects', 'the training data')}, at delta = "
        f"{privacy.get('delta', 'unknown')}. A smaller epsilon is a stronger guarantee."
    )
