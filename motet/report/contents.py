"""What the charts draw: a comparison as values for JSON, one array per quantity.

The arrays of a part follow its list of clients; a client without a score has null.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from motet.comparing.comparison import Comparison, Row
from motet.judging.statistics import PairedDifference
from motet.judging.verdict import Verdict
from motet.studies import Study

REFERENCES = ("local", "fedavg", "fedavg-ft")
MOST_CELLS = 400_000  # of the frames of one matrix: more would make the page heavy


def chart_data(comparison: Comparison, verdict: Verdict) -> dict[str, Any]:
    """Gather what the charts of a comparison draw."""
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
        "studies": [*_studies(comparison), *_privacy(comparison)],
    }


def known_clients(comparison: Comparison) -> list[str]:
    """List the clients of the federation and of the scores, each once."""
    scored = {score.client for row in comparison.rows for score in row.evaluation.rows}
    return sorted(scored | set(comparison.federation.sizes))


def _about(comparison: Comparison) -> dict[str, Any]:
    if not comparison.rows:  # every run failed: there is nothing to draw
        return {}
    first = comparison.rows[0].evaluation
    return {
        "metric": first.metric,
        "higher": first.higher_is_better,
        "split": first.split,
        "point": first.point,
    }


def _examples(comparison: Comparison, clients: Sequence[str]) -> list[int | None]:
    """Every method is scored on the same examples, so that one row speaks for all."""
    examples = {s.client: s.examples for row in comparison.rows for s in row.evaluation.rows}
    return [examples.get(client) for client in clients]


def _federation(comparison: Comparison, clients: Sequence[str]) -> dict[str, Any]:
    picture = comparison.federation
    splits = ("train", "val", "test")
    return {
        "labels": picture.labels,
        **{s: [picture.sizes.get(c, {}).get(s) for c in clients] for s in splits},
        "histograms": [picture.histograms.get(c) for c in clients] if picture.histograms else [],
        "emd": [picture.emd.get(c) for c in clients] if picture.emd else [],
    }


def _method(comparison: Comparison, label: str, clients: Sequence[str]) -> dict[str, Any]:
    rows = comparison.of(label)
    return {
        "label": label,
        "method": rows[0].evaluation.method,
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
        "curve": _columns([asdict(look) for look in row.curve]),
    }


def _difference(found: PairedDifference) -> dict[str, Any]:
    names = ("label", "reference", "mean", "low", "high", "p_value", "corrected")
    counts = ("clients_better", "clients_worse", "clients")
    evidence = "supported" if found.supported else "probable" if found.probable else "none"
    return {name: getattr(found, name) for name in (*names, *counts)} | {"evidence": evidence}


def _columns(records: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Turn a list of records into a record of lists."""
    return {key: [record[key] for record in records] for key in (records[0] if records else ())}


def _studies(comparison: Comparison) -> list[dict[str, Any]]:
    """Put the seeds of a study together: one figure, in which the reader chooses."""
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
    """Leave out frames of a matrix that is too large for a page; the first and last stay."""
    if study.kind != "matrix":
        return study.data
    frames = study.data["frames"]
    cells = max(len(study.data["names"]) ** 2, 1)
    return {**study.data, "frames": evenly(frames, max(MOST_CELLS // cells, 1))}


def evenly(items: Sequence[Any], most: int) -> list[Any]:
    """Pick at most so many items, evenly spread, the last always among them.

    >>> evenly(range(10), 4), evenly(range(3), 4), evenly(range(3), 1)
    ([0, 3, 6, 9], [0, 1, 2], [2])
    """
    if len(items) <= most:
        return list(items)
    step = (len(items) - 1) / max(most - 1, 1)
    return [items[len(items) - 1 - round(step * place)] for place in range(most)][::-1]


def _privacy(comparison: Comparison) -> Iterable[dict[str, Any]]:
    """Draw what privacy cost each client like any other number per client."""
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
    """Return each client's epsilon, where a run has kept account of it."""
    epsilon = row.privacy.get("epsilon")
    return epsilon if isinstance(epsilon, Mapping) else {}


def privacy_note(privacy: Mapping[str, Any]) -> str:
    """Say what a client's epsilon means."""
    return (
        f"Differential privacy of {privacy.get('protects', 'the training data')}, at delta = "
        f"{privacy.get('delta', 'unknown')}. A smaller epsilon is a stronger promise."
    )
