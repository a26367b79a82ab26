"""The output directory of `motet compare`.

config.toml       the complete configuration, ready to run again
data.json         manifest of the split
trials.jsonl      one line per trial of the hyperparameter search, if there is one
tuned.toml        the configuration with the values that the search chose, ready to run
results.jsonl     one line per finished method and seed
left_out.jsonl    one line per client that was left out and seed, if clients were left out
clients.parquet   one row per method, seed and client: test scores of the chosen round
sites.parquet     one row per method, reference and client: gain, interval and verdict
examples.parquet  one row per method, seed, client and test example: target, prediction, loss
comparison.json   all results, written once every method has finished
report.html       the report page
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cached_property
from typing import Any, NamedTuple

from motet._compare.comparison import Comparison
from motet._compare.searching import TrialResult
from motet._core.corrupt_files import reading
from motet._engine.examples import ExampleTable, RunExamples, read_examples, write_examples
from motet._engine.records import ScoreRow, json_text, score_rows, write_scores
from motet._engine.results import Row
from motet._runs.leftovers import (
    CHOSEN,
    CLIENTS,
    COMPARISON,
    EXAMPLES,
    LEFT_OUT,
    REPORT,
    RESULTS,
    SITES,
    TRIALS,
    TUNED,
)
from motet._runs.output_dir import OutputDir
from motet.config import write_tables


class ComparisonScore(NamedTuple):
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
    diverged: bool = False
    undefined: bool = False
    higher_is_better: bool = True

    @classmethod
    def of(cls, row: Row, score: ScoreRow) -> ComparisonScore:
        """Label a client's score with its method and seed."""
        return cls(label=row.label, seed=row.seed, **score._asdict())


class SiteLine(NamedTuple):
    """A row of sites.parquet: a `SiteVerdict`."""

    site: str
    label: str
    reference: str
    gain: float
    low: float
    high: float
    p_value: float
    state: str
    sure: bool
    in_runs: str
    examples: int
    margin: float
    small: bool


class ComparisonDirectory(OutputDir):
    """The output directory of one comparison."""

    command = "compare"

    def record(self, row: Row) -> None:
        """Append the result of a finished run; its examples first, so that a line has them."""
        if row.evaluation.examples is not None:
            known = {**self._examples, (row.label, row.seed): row.evaluation.examples}
            self._keep_examples(known)
        self.append(RESULTS, row.to_dict())

    def finished(self) -> dict[tuple[str, int], Row]:
        """Read the finished results, by label and seed."""
        with reading(self.path / RESULTS, "file of results"):
            rows = [Row.from_dict(line) for line in self._whole_lines(RESULTS)]
            return {(row.label, row.seed): self._with_examples(row) for row in rows}

    def _with_examples(self, row: Row) -> Row:
        kept = self._examples.get((row.label, row.seed))
        return replace(row, evaluation=replace(row.evaluation, examples=kept))

    @cached_property
    def _examples(self) -> dict[tuple[str, int], ExampleTable]:
        return read_examples(self.path / EXAMPLES)

    def _keep_examples(self, known: dict[tuple[str, int], ExampleTable]) -> None:
        with self.writing():
            runs = (RunExamples(*pair, table) for pair, table in known.items())
            write_examples(self.path / EXAMPLES, runs)
        self.__dict__["_examples"] = known

    def record_trial(self, tried: TrialResult) -> None:
        """Append one trial of a search."""
        self.append(TRIALS, asdict(tried))

    def tried(self) -> dict[tuple[str, int], TrialResult]:
        """Read the finished trials, by label and number."""
        with reading(self.path / TRIALS, "file of trials"):
            known = [TrialResult(**line) for line in self._whole_lines(TRIALS)]
            return {(tried.label, tried.number): tried for tried in known}

    def record_left_out(self, site: str, row: Row) -> None:
        """Append the result of a run without one client."""
        self.append(LEFT_OUT, {"left_out": site, **row.to_dict()})

    def left_out(self) -> dict[tuple[str, int], Row]:
        """Read the finished runs without one client, by that client and seed."""
        with reading(self.path / LEFT_OUT, "file of runs without one client"):
            lines = self._whole_lines(LEFT_OUT)
            rows = [(line.pop("left_out"), Row.from_dict(line)) for line in lines]
            return {(site, row.seed): row for site, row in rows}

    def keep_tuned(self, tables: Mapping[str, Any]) -> None:
        """Write the values that a search chose, as a config that needs no search."""
        header = f"{CHOSEN} Without the search: motet compare {TUNED}\n\n"
        self.replace(TUNED, (header + write_tables(tables)).encode())

    def conclude(self, comparison: Comparison) -> None:
        """Write the finished comparison and its report."""
        from motet.report._writing import page

        scores = [
            ComparisonScore.of(row, score)
            for row in comparison.rows
            for score in score_rows(row.evaluation)
        ]
        if self.finished().keys() != {(row.label, row.seed) for row in comparison.rows}:
            # A crash lost some lines.
            self.keep_lines(RESULTS, [row.to_dict() for row in comparison.rows])
        with self.writing():
            write_scores(self.path / CLIENTS, scores, ComparisonScore)
            sites = [SiteLine(**site.to_dict()) for site in comparison.verdict().sites]
            write_scores(self.path / SITES, sites, SiteLine)
        self.replace(COMPARISON, (json_text(comparison.to_dict(), indent=2) + "\n").encode())
        if comparison.rows:
            self.replace(REPORT, page([comparison]).encode())
        self.keep_description()

    def _whole_lines(self, name: str) -> list[dict[str, Any]]:
        """Read the complete lines; remove a line that a crash cut short from the file as well."""
        lines = self.lines(name)
        if lines:
            self.keep_lines(name, lines)
        return lines
