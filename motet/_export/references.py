"""Scores of Local and FedAvg at the same clients, which a model card compares a model with."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from motet._compare.comparison import Comparison
from motet._compare.references import missing_references
from motet._core.corrupt_files import reading
from motet._engine.evaluation import Evaluation
from motet._engine.federation import Run
from motet._engine.records import read_scores, score_of
from motet._engine.running import run
from motet._runs.leftovers import CLIENTS, COMPARISON, DATA
from motet.data import Federation
from motet.errors import DivergenceWarning, MotetError, RequestError, StateError
from motet.method import AnyMethod
from motet.task import Task

COMPARED = ("local", "fedavg")  # training alone, and one model for all
QUICK = 1e10  # gradients times weights of a run that takes seconds
Evaluations = tuple[Evaluation, ...]


@dataclass(frozen=True)
class Reference:
    """What another method scores on the test data of one client.

    Attributes:
        method: Its name.
        metric: What was measured.
        value: The score; the mean over seeds if there are several.
        examples: Test examples.
        round: The round that was scored.
        seeds: Number of runs.
    """

    method: str
    metric: str
    value: float
    examples: int
    round: int
    seeds: int


def references_of(client: str, evaluations: Sequence[Evaluation]) -> list[Reference]:
    """Return the scores of Local and FedAvg at one client by each metric, averaged over seeds."""
    found = []
    for method in COMPARED:
        tables = [table for e in evaluations if e.method == method for table in e.metrics]
        for metric in dict.fromkeys(table.metric for table in tables):
            same = [table for table in tables if table.metric == metric]
            own = [score for table in same for score in table.rows if score.client == client]
            scored = [score for score in own if math.isfinite(score.value)]  # else it diverged
            if scored:
                value = float(np.mean([score.value for score in scored]))
                examples, number = scored[0].examples, same[0].round
                found.append(Reference(method, metric, value, examples, number, len(scored)))
    return found


def evaluations_in(against: Comparison | Run | Sequence[Run], split: str) -> Evaluations:
    """Return the test scores of a comparison or of runs that used the same split."""
    if isinstance(against, Comparison):
        _require_same(against.split, split, "the comparison")
        return tuple(row.evaluation for row in against.rows)
    runs = [against] if isinstance(against, Run) else list(against)
    for one in runs:
        _require_same(one.setting.federation.hash, split, f"the run of {one.setting.method.name}")
    return tuple(one.evaluate() for one in runs)


def read_evaluations(directories: Iterable[Path], split: str) -> Evaluations:
    """Read the test scores in directories of `motet compare` or `motet run`."""
    found = [e for directory in directories for e in _read_directory(directory, split)]
    if found and not any(e.method in COMPARED for e in found):
        names = ", ".join(sorted({e.method for e in found}))
        raise RequestError(
            f"--against expects results of local or fedavg; found {names}. Give a directory of "
            "`motet compare`, which runs both."
        )
    return tuple(found)


def train_references(
    method: AnyMethod,
    task: Task,
    data: Federation,
    settings: Mapping[str, Any],
    *,
    required: bool = True,
) -> Evaluations:
    """Train Local and FedAvg as `method` was trained, and score them on the test data.

    Args:
        method: The method that they are compared with.
        task: The network and its loss.
        data: The federation.
        settings: Keyword arguments of `motet.run`.
        required: Whether one that cannot be trained on these data is an error; else it is left out.
    """
    others = missing_references({method.name: method})
    found: list[Evaluation] = []
    for other in (others[name] for name in COMPARED if name in others):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DivergenceWarning)  # its scores are left out
                found.append(run(other, task, data, **settings).evaluate())
        except MotetError:
            if required:
                raise
    return tuple(found)


def _read_directory(directory: Path, split: str) -> list[Evaluation]:
    if (directory / COMPARISON).is_file():
        comparison = Comparison.read(directory)
        _require_same(comparison.split, split, str(directory))
        return [row.evaluation for row in comparison.rows]
    if not (directory / CLIENTS).is_file() or not (directory / DATA).is_file():
        raise StateError(
            f"{directory} holds no finished run or comparison. Make one with "
            "`motet compare --out DIR`."
        )
    with reading(directory / DATA, "manifest"):
        manifest = json.loads((directory / DATA).read_text(encoding="utf-8"))
        _require_same(str(manifest["hash"]), split, str(directory))
    return _test_scores(directory / CLIENTS)


def _test_scores(path: Path) -> list[Evaluation]:
    """Read the first evaluation on test data: the headline of a run."""
    rows = [row for row in read_scores(path) if row.split == "test"]
    if not rows:
        raise StateError(f"{path} has no test scores: the run is not finished. `motet resume` it.")
    first = rows[0]
    about = Evaluation(first.method, first.metric, first.split, first.point, first.round, rows=())
    same = [row for row in rows if (row.point, row.round) == (about.point, about.round)]
    tables = [
        replace(
            about,
            metric=metric,
            rows=tuple(score_of(row) for row in same if row.metric == metric),
        )
        for metric in dict.fromkeys(row.metric for row in same)
    ]
    return [replace(tables[0], also=tuple(tables[1:]))]


def _require_same(found: str, split: str, where: str) -> None:
    if found != split:
        raise RequestError(
            f"{where} used another split of the data ({found[:12]}; the model's is {split[:12]}), "
            "so its scores cannot be compared. Run it with the same data, seed and split."
        )


def is_quick(run: Run, rounds: Path) -> bool:
    """Tell whether Local and FedAvg can be trained in seconds, judged by the work of the run."""
    if run.backend.name == "ray" or not rounds.is_file():
        return False
    with reading(rounds, "file of rounds"):
        # Not splitlines: names of clients may hold other characters that end a line.
        lines = filter(None, rounds.read_text(encoding="utf-8").split("\n"))
        gradients = sum(float(json.loads(line)["gradients"]) for line in lines)
    weights = sum(parameter.numel() for parameter in run.setting.task.skeleton.parameters())
    return gradients * weights < QUICK
