"""Results of a recipe: a file with a line about the recipe, and a line per finished run.

A line is written when its run is over, and is on disk before the next run begins. What a crash
leaves of an unfinished line is dropped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from motet._core.atomic import write_atomically
from motet._core.version import __version__
from motet._engine.evaluation import Evaluation
from motet._recipes.recipe import Recipe, Statistic
from motet.errors import StateError

RESULTS = "results.jsonl"


class ClientScore(NamedTuple):
    """One client's value at one point."""

    client: str
    examples: int
    value: float


@dataclass(frozen=True, kw_only=True)
class PointScores:
    """The scores of all clients at one point of the last round."""

    metric: str
    higher: bool
    clients: tuple[ClientScore, ...]

    @classmethod
    def of(cls, evaluation: Evaluation) -> PointScores:
        """Take them from an evaluation."""
        rows = tuple(ClientScore(r.client, r.examples, r.value) for r in evaluation.rows)
        return cls(metric=evaluation.metric, higher=evaluation.higher_is_better, clients=rows)

    @cached_property
    def arrays(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Values and numbers of examples."""
        _, examples, values = zip(*self.clients, strict=True)
        return np.array(values, np.float64), np.array(examples, np.float64)

    def statistic(self, name: Statistic, chosen: NDArray[np.int64] | None = None) -> float:
        """Compute a statistic over clients as `Evaluation` does, or over a resample of them."""
        values, examples = (a if chosen is None else a[chosen] for a in self.arrays)
        if name == "weighted_mean":
            return float(np.average(values, weights=examples))
        if name == "decile":
            return float(np.quantile(values, 0.1 if self.higher else 0.9))
        if name == "worst":
            return float(values.min() if self.higher else values.max())
        return float(values.std() if name == "std" else values.mean())


@dataclass(frozen=True, kw_only=True)
class Result:
    """One finished run of a training.

    Attributes:
        split: Hash of the federation, to tell which clients were served.
        seconds: Of training, without evaluation.
        reported: The point whose scores the method's authors report.
        scores: By point.
    """

    training: str
    seed: int
    reported: str
    rounds: int
    split: str
    seconds: float
    scores: Mapping[str, PointScores]

    def at(self, point: str | None) -> PointScores:
        """Return the scores at a point; None: at the one that the method's authors report."""
        return self.scores[point or self.reported]

    def to_dict(self) -> dict[str, Any]:
        """Return values for JSON."""
        return {**asdict(self), "seconds": round(self.seconds, 2)}

    @classmethod
    def from_dict(cls, written: Mapping[str, Any]) -> Result:
        """Read what `to_dict` wrote."""
        scores = {
            point: PointScores(
                metric=table["metric"],
                higher=table["higher"],
                clients=tuple(ClientScore(*row) for row in table["clients"]),
            )
            for point, table in written["scores"].items()
        }
        return cls(**{**written, "scores": scores})


@dataclass(frozen=True, kw_only=True)
class StoredResults:
    """A file of results: what it is of, and its runs by training and seed."""

    recipe: str
    scale: str
    hash: str
    version: str
    runs: Mapping[tuple[str, int], Result]


def read_results(path: Path) -> StoredResults:
    """Read a file of results; a last line that was not finished is left out."""
    try:
        first, *lines = _whole_lines(path)
        about = json.loads(first)
        runs = [Result.from_dict(json.loads(line)) for line in lines]
        return StoredResults(**about, runs={(run.training, run.seed): run for run in runs})
    except OSError as reason:
        raise StateError(f"{path} cannot be read: {reason.strerror}.") from None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise StateError(
            f"{path} does not hold results of a recipe; `motet reproduce` writes such a file, "
            f"{RESULTS}, to its --out directory."
        ) from None


def other_recipe(stored: StoredResults, recipe: Recipe, scale: str) -> str | None:
    """Say of what else results are than of a recipe at a scale; None if they are of it."""
    own = recipe.hash(scale)
    if (stored.recipe, stored.scale) != (recipe.name, scale):
        return (
            f'holds results of the recipe "{stored.recipe}" at scale "{stored.scale}", not of '
            f'"{recipe.name}" at scale "{scale}"'
        )
    if stored.hash != own:
        return (
            f'holds results of "{recipe.name}" with other settings, cells or rules than it has '
            f"now: its hash was {stored.hash} and is {own}"
        )
    return None


def _whole_lines(path: Path) -> list[bytes]:
    return path.read_bytes().split(b"\n")[:-1]


class Records:
    """The results in a directory, to which runs are added."""

    def __init__(self, path: Path, stored: StoredResults) -> None:
        self.path, self.stored = path, stored
        self.runs = dict(stored.runs)

    @classmethod
    def open(cls, folder: Path, recipe: Recipe, scale: str) -> Records:
        """Open the results of a recipe, or begin them."""
        path, own = folder / RESULTS, recipe.hash(scale)
        if not path.exists():
            about = {"recipe": recipe.name, "scale": scale, "hash": own, "version": __version__}
            write_atomically(path, f"{json.dumps(about)}\n".encode())
        stored = read_results(path)
        if (reason := other_recipe(stored, recipe, scale)) is not None:
            raise StateError(f"{path} {reason}; choose another directory with --out.")
        write_atomically(path, b"".join(line + b"\n" for line in _whole_lines(path)))
        return cls(path, stored)

    def add(self, result: Result) -> None:
        """Add a run; it is on disk when this returns."""
        with self.path.open("ab") as file:
            file.write(f"{json.dumps(result.to_dict())}\n".encode())
            file.flush()
            os.fsync(file.fileno())
        self.runs[result.training, result.seed] = result


def differences(ours: StoredResults, theirs: StoredResults) -> list[str]:
    """List the runs that both have, and whose numbers differ; and those that only one has."""
    if ours.hash != theirs.hash:
        return [f"the recipes differ: hash {ours.hash} and {theirs.hash}"]
    found = []
    for key in sorted({*ours.runs, *theirs.runs}):
        a, b = ours.runs.get(key), theirs.runs.get(key)
        what = f"{key[0]}, seed {key[1]}"
        if a is None or b is None:
            found.append(f"{what}: only in one of the two")
        elif (a.split, a.scores) != (b.split, b.scores):
            found.append(f"{what}: other numbers")
    return found
