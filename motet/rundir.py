"""Run directories: everything about a run, in files that other programs can read.

config.toml       the complete experiment, ready to be run again
data.json         the manifest of the split
rounds.jsonl      a line per round
clients.parquet   a row per client and evaluation
checkpoint/       the state after the last round that was saved
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from motet import checkpoint
from motet.evaluate import Evaluation
from motet.federation import Round, Run
from motet.folder import CHECKPOINT, CLIENTS, ROUNDS, Folder
from motet.records import ScoreRow, read_scores, score_rows, write_scores


class RunDirectory(Folder):
    """The directory of one run."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.scores: list[ScoreRow] = []

    def record(self, done: Round, validation: Evaluation | None) -> None:
        """Append a round."""
        line: dict[str, Any] = {
            "round": done.number,
            "cohort": done.cohort,
            "bytes_down": done.bytes_down,
            "bytes_up": done.bytes_up,
            "gradients": done.gradients,
            "seconds": done.seconds,
            "notes": done.notes,
        }
        if validation is not None:
            line["validation"] = validation.summary()
            self.add_scores(validation)
        self.append(ROUNDS, line)

    def add_scores(self, evaluation: Evaluation) -> None:
        """Remember scores until they are saved."""
        self.scores += score_rows(evaluation)

    def save(self, run: Run) -> None:
        """Save scores and state, the state last: it says how far the rest is complete."""
        write_scores(self.path / CLIENTS, self.scores)
        with (self.path / ROUNDS).open("a") as file:
            os.fsync(file.fileno())
        checkpoint.save(run, self.path / CHECKPOINT)

    def restore(self, run: Run) -> None:
        """Put the saved state into a fresh run, and forget records of rounds after it."""
        if checkpoint.exists(self.path / CHECKPOINT):
            checkpoint.restore(run, self.path / CHECKPOINT)
        self.keep_lines(ROUNDS, [line for line in self.rounds() if line["round"] <= run.finished])
        scores = read_scores(self.path / CLIENTS)
        # Test scores are made again at the end.
        self.scores = [row for row in scores if row.round <= run.finished and row.split == "val"]

    def rounds(self) -> list[dict[str, Any]]:
        """Read the rounds on record."""
        return self.lines(ROUNDS)
