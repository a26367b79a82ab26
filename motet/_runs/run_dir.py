"""Run directories: everything about a run, in files that other programs can read.

config.toml       the complete experiment, ready to be run again
data.json         the manifest of the split
rounds.jsonl      a line per round
timings.jsonl     how long each round took: the only thing that differs between equal runs
clients.parquet   a row per client and evaluation
privacy.json      what a private run has spent of it, when it is over
checkpoint/       the state after the last round that was saved, and all of the above until then

What is saved together is in the checkpoint, in one transaction; the other files show it to readers,
and are written again from it when a run is resumed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from motet._engine.divergence import of_lines
from motet._engine.evaluation import Evaluation
from motet._engine.federation import Round, Run
from motet._engine.records import ScoreRow, json_text, score_rows, write_scores
from motet._runs.checkpoint import Checkpoint
from motet._runs.leftovers import CHECKPOINT, CLIENTS, ROUNDS, TIMINGS
from motet._runs.output_dir import OutputDir

GROWTH = 1.25  # of the scores, before they are written out again: so all writing stays linear


class RunDirectory(OutputDir):
    """The directory of one run."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._checkpoint: Checkpoint | None = None
        self._evaluations = self._shown = 0  # noted, and written to clients.parquet

    @property
    def checkpoint(self) -> Checkpoint:
        """Where the run is saved."""
        assert self._checkpoint is not None, "no run is attached"
        return self._checkpoint

    def attach(self, run: Run) -> None:
        """Say whose directory this is."""
        self._checkpoint = Checkpoint(run, self.path / CHECKPOINT, self.history)

    def record(
        self, done: Round, validation: Evaluation | None, *, look_gradients: float = 0.0
    ) -> None:
        """Append a round, with a look at validation data and the gradients that it took."""
        line: dict[str, Any] = {
            "round": done.number,
            "cohort": done.cohort,
            "bytes_down": done.bytes_down,
            "bytes_up": done.bytes_up,
            "gradients": done.gradients,
            "notes": done.notes,
        }
        faults = ("lost", "rejected", "diverged", "failed")
        line |= {name: getattr(done, name) for name in faults if getattr(done, name)}
        damaged = self.checkpoint.newly_damaged()
        if damaged:
            line["damaged"] = damaged
        if validation is not None:
            line["validation"] = validation.summary()
            line["look_gradients"] = look_gradients
            self._note_scores("validation", done.number, validation)
        self._note_line(ROUNDS, done.number, line)
        self._note_line(TIMINGS, done.number, {"round": done.number, "seconds": done.seconds})

    def conclude(self, final: Iterable[Evaluation]) -> None:
        """Add the scores on the test data; those of an earlier conclusion are replaced."""
        for position, evaluation in enumerate(final):
            self._note_scores("test", position, evaluation)
        self.save()
        self._show_scores()
        self._show_lines()
        self.keep_description()

    def save(self) -> None:
        """Save everything up to here, in one step."""
        with self.writing():
            self.checkpoint.save()
        if self._evaluations > GROWTH * self._shown:
            self._show_scores()

    def restore(self, run: Run) -> None:
        """Put the saved state into a fresh run, and forget records of rounds after it."""
        self.attach(run)
        self.checkpoint.restore()
        self._show_lines()
        run.divergence = of_lines(self.rounds())
        run.notes = [{"round": d["round"], **d["notes"]} for d in self.rounds() if d["notes"]]
        self._evaluations = sum(1 for _ in self.checkpoint.notes("validation"))

    def rounds(self) -> list[dict[str, Any]]:
        """Read the rounds on record, with how long each took."""
        took = {line["round"]: line["seconds"] for line in self.lines(TIMINGS)}
        return [{**line, "seconds": took.get(line["round"], 0.0)} for line in self.lines(ROUNDS)]

    def close(self) -> None:
        """Let others open the directory; what was not saved is forgotten."""
        if self._checkpoint is not None:
            self._checkpoint.close()
        super().close()

    def _note_line(self, name: str, number: int, line: dict[str, Any]) -> None:
        self.append(name, line)
        self.checkpoint.note(name, number, json_text(line))

    def _note_scores(self, kind: str, number: int, evaluation: Evaluation) -> None:
        self.checkpoint.note(kind, number, json.dumps(evaluation.to_dict()))
        self._evaluations += 1

    def _show_lines(self) -> None:
        """Write the lines of all rounds anew: some may have been lost, or not saved."""
        for name in (ROUNDS, TIMINGS):
            text = "".join(f"{line}\n" for _, line in self.checkpoint.notes(name))
            self.replace(name, text.encode())

    def _show_scores(self) -> None:
        with self.writing():
            write_scores(self.path / CLIENTS, self._scores())
        self._shown = self._evaluations

    def _scores(self) -> Iterator[ScoreRow]:
        for kind in ("validation", "test"):
            for _, text in self.checkpoint.notes(kind):
                yield from score_rows(Evaluation.from_dict(json.loads(text)))
