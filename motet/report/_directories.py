"""Reading output directories of `motet compare` and `motet run` for a report.

A directory of `motet compare` holds a comparison already. Runs of `motet run` with the same split,
network, rounds and cohort are grouped into one: with equal seeds they had the same cohorts and
initial weights. Nothing is locked, so a report can be made while a run is still going.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from motet._core.corrupt_files import reading
from motet._core.real_paths import did_you_mean
from motet._core.text import listed
from motet._engine.divergence import of_lines
from motet._engine.evaluation import Evaluation
from motet._engine.records import ScoreRow, evaluations_of, read_scores
from motet._engine.results import Cost, Look, Row
from motet._runs.leftovers import CLIENTS, CONFIG, DATA
from motet._runs.output_dir import OutputDir
from motet._runs.run_dir import RunDirectory
from motet._verdict.federation_summary import FederationSummary
from motet._verdict.results import Results
from motet.data import rebuild
from motet.errors import MotetError, StateError

SPENT = ("bytes_up", "bytes_down", "gradients", "seconds")
Conditions = tuple[Any, ...]


@dataclass(frozen=True)
class _Run:
    """The contents of a run directory."""

    row: Row
    tables: Mapping[str, Any]
    manifest: Mapping[str, Any]

    @property
    def conditions(self) -> Conditions:
        """The values that must be equal for runs to be comparable."""
        run, network = self.tables["run"], json.dumps(self.tables.get("model"), sort_keys=True)
        scored = (self.row.evaluation.metric, self.row.evaluation.split)
        return (self.manifest["hash"], network, run["rounds"], run["cohort"], *scored)


@contextmanager
def unchanged(paths: Sequence[Path]) -> Iterator[None]:
    """Raise on exit if the run in one of the directories was replaced in the meantime.

    Args:
        paths: Directories that are read inside the block.

    Yields:
        Nothing.

    Raises:
        StateError: A run was replaced in the meantime.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as folder, unchanged([Path(folder)]):
        ...     runs = sorted(Path(folder).glob("*/config.toml"))
        >>> runs
        []
    """
    before = {path: _stamp(path / CONFIG) for path in paths}
    yield
    for path, stamp in before.items():
        if _stamp(path / CONFIG) != stamp:
            raise StateError(
                f"{path} was overwritten by another run while it was read; make the report again."
            )


def read_all(paths: Sequence[Path]) -> list[Results]:
    """Read directories: first the comparisons, then the runs, grouped by their conditions.

    Args:
        paths: Directories of comparisons and runs.

    Returns:
        Results, each for a part of a page.

    Raises:
        StateError: A directory holds neither a comparison nor a run with scores.

    Example:
        >>> from pathlib import Path
        >>> read_all([Path("nowhere")])
        Traceback (most recent call last):
            ...
        motet.errors.StateError: nowhere holds neither a run nor a comparison: config.toml is ...
    """
    tables = {path: _tables(path) for path in paths}
    compared = [Results.read(path) for path in paths if "compare" in tables[path]]
    groups: dict[Conditions, list[_Run]] = {}
    for path in paths:
        if "compare" not in tables[path]:
            with reading(path, "run"):
                run = _read_run(path, tables[path])
                groups.setdefault(run.conditions, []).append(run)
    return [*compared, *(_merged(runs) for runs in groups.values())]


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _tables(path: Path) -> dict[str, Any]:
    if not (path / CONFIG).is_file():
        if path.is_file():
            raise StateError(f"{path} is a file; expected the directory of a run or a comparison.")
        inside = [str(found.parent) for found in sorted(path.glob(f"*/{CONFIG}"))[:3]]
        if inside:
            raise StateError(
                f"{path} holds neither a run nor a comparison itself; name {listed(inside)}."
            )
        raise StateError(
            f"{path} holds neither a run nor a comparison: {CONFIG} is missing. Make one with "
            f"`motet run --out DIR` or `motet compare --out DIR`.{did_you_mean(path)}"
        )
    return OutputDir(path).tables()


def _read_run(path: Path, tables: Mapping[str, Any]) -> _Run:
    scores = read_scores(path / CLIENTS)
    if not scores:
        raise StateError(
            f"{path} has no scores yet: {CLIENTS} is missing or empty. Let the run finish, or "
            f"continue it with `motet resume {path}`."
        )
    manifest = json.loads((path / DATA).read_text(encoding="utf-8"))
    row = _row(tables, _reported(scores, tables), RunDirectory(path).rounds())
    return _Run(row, tables, manifest)


def _reported(scores: Sequence[ScoreRow], tables: Mapping[str, Any]) -> Evaluation:
    """Return the last round's test scores, or the latest validation scores of an unfinished run."""
    split = "test" if any(row.split == "test" for row in scores) else "val"
    last = max(row.round for row in scores if row.split == split)
    there = [row for row in scores if (row.split, row.round) == (split, last)]
    (headline, *_) = tables["run"].get("points") or [there[0].point]
    point = headline if any(row.point == headline for row in there) else there[0].point
    chosen = [row for row in there if row.point == point]
    first, *others = evaluations_of(chosen)
    weigh = tables["run"].get("weigh", "clients")
    also = tuple(replace(table, weigh=weigh) for table in others)
    return replace(first, weigh=weigh, also=also)


def _row(
    tables: Mapping[str, Any], evaluation: Evaluation, rounds: Sequence[Mapping[str, Any]]
) -> Row:
    spent = {name: sum(line[name] for line in rounds) for name in SPENT}
    return Row(
        label=evaluation.method,
        seed=tables["run"]["seed"],
        evaluation=evaluation,
        cost=Cost(
            **spent,
            private_bytes=float("nan"),  # not recorded in a run directory
            look_gradients=sum(line.get("look_gradients", 0.0) for line in rounds),
        ),
        rounds=len(rounds),
        curve=tuple(_looks(rounds)),
        warnings=_warnings(evaluation, rounds),
        faults=_faults(rounds),
        notes=tuple({"round": line["round"], **line["notes"]} for line in rounds if line["notes"]),
    )


def _warnings(evaluation: Evaluation, rounds: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    scored = {score.client for score in evaluation.rows}
    clients = scored.union(*(line["cohort"] for line in rounds))
    warning = " ".join(of_lines(rounds).sentences(len(clients), evaluation))
    return (warning,) if warning else ()


def _faults(rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    lost = sum(len(line.get("lost", ())) for line in rounds)
    refused = {c: why for line in rounds for c, why in line.get("rejected", {}).items()}
    found = {"lost_replies": lost, "refusals": refused, **of_lines(rounds).faults()}
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
            diverged = seen.get("diverged", 0)
            also = {one["metric"]: one["mean"] for one in seen.get("also", ())}
            looks.append(Look(round=line["round"], **values, **spent, diverged=diverged, also=also))
    return looks


def _merged(runs: Sequence[_Run]) -> Results:
    manifest, settings = runs[0].manifest, runs[0].tables["run"]
    return Results(
        rows=tuple(_labelled(runs)),
        data=manifest["name"],
        split=manifest["hash"],
        rounds=settings["rounds"],
        cohort=settings["cohort"],
        federation=_summary(manifest),
    )


def _labelled(runs: Sequence[_Run]) -> list[Row]:
    """Label the rows: one label per method and hyperparameters, shared by all seeds."""
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
            f"two of the runs are {label} with seed {row.seed} under the same conditions; pass "
            "only one of their directories."
        )
    return replace(row, label=label)


def _summary(manifest: Mapping[str, Any]) -> FederationSummary:
    """Summarize the data; empty if it is no longer available, which the page can handle."""
    try:
        with reading(DATA, "manifest"):
            return FederationSummary.of(rebuild(manifest))
    except MotetError:
        return FederationSummary()
