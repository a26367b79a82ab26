"""Directories of comparisons.

config.toml       the complete comparison, ready to be run again
data.json         the manifest of the split
trials.jsonl      a line per try of the search for hyperparameters, if there is one
tuned.toml        the comparison with what the search chose, ready to be run without it
results.jsonl     a line per method and seed that has finished
clients.parquet   a row per method, seed and client: the test scores of the chosen round
comparison.json   all of it, once every method has finished
report.html       all of it, to look at
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

from motet.atomic import write_atomically
from motet.comparing.comparison import Comparison
from motet.comparing.rows import Row
from motet.comparing.searching import Tried
from motet.config import write_tables
from motet.folder import CLIENTS, COMPARISON, REPORT, RESULTS, TRIALS, TUNED, Folder
from motet.malformed import reading
from motet.records import ScoreRow, json_text, score_rows, write_scores


class ContestScore(NamedTuple):
    """One client's score under one method with one seed: a row of clients.parquet."""

    label: str
    method: str
    seed: int
    round: int
    split: str
    point: str
    client: str
    examples: int
    metric: str
    value: float
    loss: float

    @classmethod
    def of(cls, row: Row, score: ScoreRow) -> ContestScore:
        """Say whose score it is."""
        return cls(label=row.label, seed=row.seed, **score._asdict())


class ContestDirectory(Folder):
    """The directory of one comparison."""

    command = "compare"

    def record(self, row: Row) -> None:
        """Append a method that has finished."""
        self.append(RESULTS, row.to_dict())

    def finished(self) -> dict[tuple[str, int], Row]:
        """Read what has finished, by label and seed."""
        with reading(self.path / RESULTS, "file of results"):
            rows = [Row.from_dict(line) for line in self._whole_lines(RESULTS)]
            return {(row.label, row.seed): row for row in rows}

    def record_trial(self, tried: Tried) -> None:
        """Append one try of a search."""
        self.append(TRIALS, asdict(tried))

    def tried(self) -> dict[tuple[str, int], Tried]:
        """Read what has been tried, by label and number."""
        with reading(self.path / TRIALS, "file of tries"):
            known = [Tried(**line) for line in self._whole_lines(TRIALS)]
            return {(tried.label, tried.number): tried for tried in known}

    def keep_tuned(self, tables: Mapping[str, Any]) -> None:
        """Write down what a search chose, as a config that needs no search."""
        header = "# What the search chose. Without the search: motet compare tuned.toml\n\n"
        write_atomically(self.path / TUNED, (header + write_tables(tables)).encode())

    def conclude(self, comparison: Comparison) -> None:
        """Write the whole comparison down."""
        scores = [
            ContestScore.of(row, score)
            for row in comparison.rows
            for score in score_rows(row.evaluation)
        ]
        write_scores(self.path / CLIENTS, scores, ContestScore)
        text = json_text(comparison.to_dict(), indent=2) + "\n"
        write_atomically(self.path / COMPARISON, text.encode())
        if comparison.rows:
            comparison.report(self.path / REPORT)

    def _whole_lines(self, name: str) -> list[dict[str, Any]]:
        """Read lines, and drop what a crash cut short from the file, too."""
        lines = self.lines(name)
        if lines:
            self.keep_lines(name, lines)
        return lines
