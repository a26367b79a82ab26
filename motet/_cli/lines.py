"""Progress as lines of text: a few where there is no terminal, JSON lines with `--json`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from motet._cli.progress import duration
from motet._cli.standings import Standing, Standings
from motet._cli.terminal import say, write_json_line
from motet._core.visible_text import visible
from motet._engine.observers import Watcher

if TYPE_CHECKING:
    from motet._engine.federation import Round
    from motet._engine.results import Look, Row

PATIENCE_S = 5.0  # between two lines about the same run


class PlainLines(Watcher):
    """A line for every run that ends, and one every few seconds in between.

    `standings` hears everything before these lines do.
    """

    def __init__(self, standings: Standings, write: Callable[[str], None] = say) -> None:
        self.standings, self.write = standings, write
        self.written = standings.clock()

    def round_done(self, label: str, seed: int, done: Round, look: Look | None) -> None:
        run = self.standings.runs[label, seed]
        if trouble := run.news():
            self._line(f"{_name(run)}: {trouble}")
        elif self.standings.clock() - self.written >= PATIENCE_S:
            known = _looked(run.last, self.standings.metric)
            self._line(f"{_name(run)}: round {run.round}/{run.rounds}{known}{self._left()}")

    def finished(self, label: str, seed: int, row: Row) -> None:
        run = self.standings.runs[label, seed]
        known = _looked(run.best, self.standings.metric, "best ")
        counted = self._counted()
        self._line(f"{_name(run)}: done in {duration(run.seconds)}{known}{counted}{self._left()}")

    def failed(self, label: str, seed: int, reason: str) -> None:
        if len(self.standings.runs) > 1:  # else the command says so itself
            self._line(f"{label}, seed {seed}: failed: {reason}{self._counted()}{self._left()}")

    def _line(self, text: str) -> None:
        self.write(visible(text))
        self.written = self.standings.clock()

    def _counted(self) -> str:
        total = len(self.standings.runs)
        return f"; {self.standings.count('done', 'failed')} of {total} runs" if total > 1 else ""

    def _left(self) -> str:
        left = self.standings.seconds_left
        return f"; about {duration(left)} left" if left else ""


def _name(run: Standing) -> str:
    return f"{run.label}, seed {run.seed}"


def _looked(look: Look | None, metric: str, which: str = "") -> str:
    if look is None:
        return ""
    mark = f", {look.diverged} clients diverged" if look.diverged else ""
    return f", {which}validation {metric} {look.mean:.3f} (round {look.round}{mark})"


class JsonLines(Watcher):
    """A JSON object per event; the schema is in docs/guides/command-line.md."""

    def __init__(self, write: Callable[[dict[str, Any]], None] = write_json_line) -> None:
        self.write = write

    def began(self, label: str, seed: int, rounds: int) -> None:
        self._event("begin", label, seed, rounds=rounds)

    def round_done(self, label: str, seed: int, done: Round, look: Look | None) -> None:
        names = ("bytes_up", "bytes_down", "gradients", "seconds")
        spent = {name: getattr(done, name) for name in names}
        faults = {name: getattr(done, name) for name in ("lost", "rejected", "diverged", "failed")}
        about = {**spent, **{name: fault for name, fault in faults.items() if fault}}
        self._event("round", label, seed, round=done.number, clients=len(done.cohort), **about)
        if look is not None:
            self._event("look", label, seed, **asdict(look))

    def finished(self, label: str, seed: int, row: Row) -> None:
        summary, cost = row.evaluation.summary(), asdict(row.cost)
        self._event("finished", label, seed, evaluation=summary, cost=cost)

    def failed(self, label: str, seed: int, reason: str) -> None:
        self._event("failed", label, seed, reason=reason)

    def _event(self, event: str, label: str, seed: int, **about: Any) -> None:
        self.write({"event": event, "label": label, "seed": seed, **about})
