"""Results of a federation so far, read from its run directory while it is running."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from motet._engine.evaluation import Evaluation
from motet._engine.records import evaluations_of, read_scores
from motet._runs.leftovers import CLIENTS
from motet._runs.run_dir import RunDirectory


def rounds(folder: Path) -> list[dict[str, Any]]:
    """Read the recorded rounds, oldest first."""
    return RunDirectory(folder).rounds()


def evaluations(folder: Path) -> list[Evaluation]:
    """Read the recorded scores, in the order in which they were written."""
    return evaluations_of(read_scores(folder / CLIENTS))


def last_scores(folder: Path) -> dict[str, Any] | None:
    """Summarize the latest scores: on test data once the run has finished, before on validation."""
    final = [e for e in evaluations(folder) if e.split == "test"]
    if final:
        return final[0].summary()
    looks = [line["validation"] for line in rounds(folder) if "validation" in line]
    return looks[-1] if looks else None


def costs(folder: Path) -> dict[str, float]:
    """Sum the costs of all recorded rounds."""
    names = ("bytes_up", "bytes_down", "gradients", "seconds")
    return {name: sum(line[name] for line in rounds(folder)) for name in names}
