"""Directories of comparisons and of runs, as comparisons that a page can show.

A directory of `motet compare` is a comparison already. Runs of `motet run` with the same split,
network, rounds and cohort are one, too: with equal seeds they had the same cohorts and initial
weights. Nothing is locked: a page may be made of a run that is still at work.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from motet.comparing.comparison import Comparison, Cost, FederationPicture, Look, Row, read
from motet.errors import MotetError, StateError
from motet.evaluate import Evaluation, Score
from motet.folder import CLIENTS, CONFIG, DATA, Folder
from motet.malformed import reading
from motet.records import ScoreRow, read_scores
from motet.rundir import RunDirectory

SPENT = ("bytes_up", "bytes_down", "gradients", "seconds")
Conditions = tuple[Any, ...]


@dataclass(frozen=True)
class _Run:
    """What a run directory holds, with the tables of its config."""

    row: Row
    tables: Mapping[str, Any]
    manifest: Mapping[str, Any]

    @property
    def conditions(self) -> Conditions:
        """Only runs that agree in all of this can be put side by side."""
        run, network = self.tables["run"], json.dumps(self.tables.get("model"), sort_keys=True)
        scored = (self.row.evaluation.metric, self.row.evaluation.split)
        return (self.manifest["hash"], network, run["rounds"], run["cohort"], *scored)


def read_all(paths: Sequence[Path]) -> list[Comparison]:
    """Read directories: the comparisons in their order, then the runs, those that belong together.

    Raises:
        StateError: A directory holds neither a comparison nor a run that has scores.
    """
    tables = {path: _tables(path) for path in paths}
    compared = [read(path) for path in paths if "compare" in tables[path]]
    groups: dict[Conditions, list[_Run]] = {}
    for path in paths:
        if "compare" not in tables[path]:
            with reading(path, "run"):
                run = _read_run(path, tables[path])
                groups.setdefault(run.conditions, []).append(run)
    return [*compared, *(_side_by_side(runs) for runs in groups.values())]


def _tables(path: Path) -> dict[str, Any]:
    if not (path / CONFIG).is_file():
        raise StateError(
            f"{path} holds neither a run nor a comparison: {CONFIG} is missing. Make one with "
            "`motet run --out DIR` or `motet compare --out DIR`."
        )
    return Folder(path).tables()


def _read_run(path: Path, tables: Mapping[str, Any]) -> _Run:
    scores = read_scores(path / CLIENTS)
    if not scores:
        raise StateError(
            f"{path} has no scores yet: {CLIENTS} is missing or empty. Let the run finish, or go "
            f"on with `motet resume {path}`."
        )
    manifest = json.loads((path / DATA).read_text(encoding="utf-8"))
    row = _row(tables, _reported(scores), RunDirectory(path).rounds())
    return _Run(row, tables, manifest)


def _reported(scores: Sequence[ScoreRow]) -> Evaluation:
    """Take the test scores of the last round; of a run at work, its last look at validation."""
    split = "test" if any(row.split == "test" for row in scores) else "val"
    last = max(row.round for row in scores if row.split == split)
    there = [row for row in scores if (row.split, row.round) == (split, last)]
    points = {row.point for row in there}
    point = "after_adapt" if "after_adapt" in points else sorted(points)[0]
    chosen = [row for row in there if row.point == point]
    found = tuple(Score(row.client, row.examples, row.value, row.loss) for row in chosen)
    return Evaluation(chosen[0].method, chosen[0].metric, split, point, last, found)


def _row(
    tables: Mapping[str, Any], evaluation: Evaluation, rounds: Sequence[Mapping[str, Any]]
) -> Row:
    spent = {name: sum(line[name] for line in rounds) for name in SPENT}
    return Row(
        label=evaluation.method,
        seed=tables["run"]["seed"],
        evaluation=evaluation,
        cost=Cost(**spent, private_bytes=float("nan")),  # a run does not write it down
        rounds=len(rounds),
        curve=tuple(_looks(rounds)),
        faults=_faults(rounds),
        notes=tuple({"round": line["round"], **line["notes"]} for line in rounds if line["notes"]),
    )


def _faults(rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    lost = sum(len(line.get("lost", ())) for line in rounds)
    refused = {c: why for line in rounds for c, why in line.get("rejected", {}).items()}
    found = {"lost_replies": lost, "refusals": refused}
    return {name: fault for name, fault in found.items() if fault}


def _looks(rounds: Sequence[Mapping[str, Any]]) -> list[Look]:
    looks, spent = [], dict[str, Any].fromkeys(SPENT, 0)
    for line in rounds:
        spent = {name: spent[name] + line[name] for name in SPENT}
        if "validation" in line:
            seen = line["validation"]
            names = ("mean", "std", "decile", "worst", "loss")
            values: dict[str, Any] = {
                name: float("nan") if seen[name] is None else seen[name] for name in names
            }
            looks.append(Look(round=line["round"], **values, **spent))
    return looks


def _side_by_side(runs: Sequence[_Run]) -> Comparison:
    manifest, settings = runs[0].manifest, runs[0].tables["run"]
    return Comparison(
        rows=tuple(_labelled(runs)),
        data=manifest["name"],
        split=manifest["hash"],
        rounds=settings["rounds"],
        cohort=settings["cohort"],
        federation=_picture(manifest),
    )


def _labelled(runs: Sequence[_Run]) -> list[Row]:
    """Give one label to the seeds of a method, and another to other hyperparameters of it."""
    labels: list[tuple[dict[str, Any], str]] = []
    rows: list[Row] = []
    for run in runs:
        method, name = run.tables["method"], run.row.label
        same = [label for known, label in labels if known == method]
        alike = sum(known["name"] == method["name"] for known, _ in labels)
        label = same[0] if same else f"{name} ({alike + 1})" if alike else name
        labels += [] if same else [(method, label)]
        rows.append(_with_label(run.row, label, rows))
    return rows


def _with_label(row: Row, label: str, before: Sequence[Row]) -> Row:
    twice = sum((other.label, other.seed) == (label, row.seed) for other in before)
    if twice:
        raise StateError(
            f"two of the runs are {label} with seed {row.seed} under the same conditions; name "
            "only one of their directories."
        )
    return replace(row, label=label)


def _picture(manifest: Mapping[str, Any]) -> FederationPicture:
    """Look at the data, where they are still at hand; the page can do without."""
    from motet.data import rebuild

    try:
        with reading(DATA, "manifest"):
            return FederationPicture.of(rebuild(manifest))
    except MotetError:
        return FederationPicture()
