"""What a federation has written down so far, read while it is at work."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from motet.evaluate import Evaluation, Score
from motet.folder import CLIENTS
from motet.records import read_scores
from motet.rundir import RunDirectory


def rounds(folder: Path) -> list[dict[str, Any]]:
    """Read the rounds on record, oldest first."""
    return RunDirectory(folder).rounds()


def evaluations(folder: Path) -> list[Evaluation]:
    """Read the scores on record, in the order in which they came."""
    gathered: dict[tuple[str, str, str, str, int], list[Score]] = defaultdict(list)
    for row in read_scores(folder / CLIENTS):
        about = (row.method, row.metric, row.split, row.point, row.round)
        gathered[about].append(Score(row.client, row.examples, row.value, row.loss))
    return [Evaluation(*about, tuple(rows)) for about, rows in gathered.items()]


def last_scores(folder: Path) -> dict[str, Any] | None:
    """Summarize the scores that came last: on the test data at the end, and before on others."""
    final = [e for e in evaluations(folder) if e.split == "test"]
    if final:
        return final[0].summary()
    looks = [line["validation"] for line in rounds(folder) if "validation" in line]
    return looks[-1] if looks else None


def costs(folder: Path) -> dict[str, float]:
    """Sum up what the rounds took."""
    names = ("bytes_up", "bytes_down", "gradients", "seconds")
    return {name: sum(line[name] for line in rounds(folder)) for name in names}
