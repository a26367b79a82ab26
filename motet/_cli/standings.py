"""Progress of every run of a comparison, and an estimate of the time left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from motet._engine.observers import Watcher
from motet.errors import NOT_FINITE

if TYPE_CHECKING:
    from motet._engine.federation import Round
    from motet._engine.results import Look, Row

State = Literal["waiting", "running", "done", "failed"]
Clock = Callable[[], float]


@dataclass
class Standing:
    """Where one method with one seed stands."""

    label: str
    seed: int
    rounds: int
    state: State = "waiting"
    round: int = 0
    measured: int = 0  # rounds that passed while we looked: a resumed run has others behind it
    seconds: float = 0.0  # that they took, with everything around them
    best: Look | None = None  # by the validation data
    last: Look | None = None
    trouble: str = ""  # the first round that failed, or at which clients diverged
    told: bool = False  # of the trouble

    @property
    def rounds_left(self) -> int:
        """Rounds still to be run."""
        return self.rounds - self.round if self.state in ("waiting", "running") else 0

    def suffered(self, done: Round) -> None:
        """Remember the first round in which something was not finite."""
        spoiled = {**done.diverged, **{c: w for c, w in done.rejected.items() if NOT_FINITE in w}}
        if self.trouble or not (done.failed or spoiled):
            return
        what = f"diverged at {len(spoiled)} of {len(done.cohort)} clients"
        kept = f"the server keeps its old state: {done.failed}"
        self.trouble = f"round {done.number} {what if spoiled else kept}"

    def news(self) -> str:
        """Return the trouble once; after that, nothing."""
        told, self.told = self.told, self.told or bool(self.trouble)
        return "" if told else self.trouble

    def saw(self, look: Look, *, higher_is_better: bool) -> None:
        """Remember a look at the validation data."""
        sign = 1 if higher_is_better else -1
        # Written so that a best one that is NaN gives way to any number.
        if self.best is None or not sign * look.mean <= sign * self.best.mean:
            self.best = look
        self.last = look


class Standings(Watcher):
    """Hears of every run, and can be asked about all of them."""

    def __init__(
        self,
        pairs: Iterable[tuple[str, int]],
        rounds: int,
        *,
        finished: Iterable[tuple[str, int]] = (),
        clock: Clock = time.monotonic,
    ) -> None:
        self.runs = {pair: Standing(*pair, rounds) for pair in pairs}
        for pair in finished:
            self.runs[pair].state, self.runs[pair].round = "done", rounds
        self.metric = ""  # known from the first round on
        self.clock = clock
        self.started = self.heard = clock()

    def began(self, label: str, seed: int, rounds: int) -> None:
        self.runs[label, seed] = Standing(label, seed, rounds, state="running")
        self.heard = self.clock()

    def round_done(self, label: str, seed: int, done: Round, look: Look | None) -> None:
        run = self.runs[label, seed]
        run.round = done.number
        run.measured += 1
        run.seconds += self._since_heard()
        run.suffered(done)
        deciding = done.run.metrics[0]
        self.metric = deciding.name
        if look is not None:
            run.saw(look, higher_is_better=deciding.higher_is_better)

    def finished(self, label: str, seed: int, row: Row) -> None:
        run = self.runs[label, seed]
        # Rounds that were not needed count as run: the next seed will not need them either.
        run.measured += run.rounds - run.round
        run.round, run.state = run.rounds, "done"
        run.seconds += self._since_heard()

    def failed(self, label: str, seed: int, reason: str) -> None:
        self.runs[label, seed].state = "failed"
        self.heard = self.clock()

    def of(self, label: str) -> list[Standing]:
        """Return a method's runs, one per seed."""
        return [run for run in self.runs.values() if run.label == label]

    @property
    def labels(self) -> tuple[str, ...]:
        """The methods, each once."""
        return tuple(dict.fromkeys(run.label for run in self.runs.values()))

    @property
    def running(self) -> Standing | None:
        """The run under way."""
        return next((run for run in self.runs.values() if run.state == "running"), None)

    def count(self, *states: State) -> int:
        """Count the runs in some states."""
        return sum(run.state in states for run in self.runs.values())

    @property
    def share_done(self) -> float:
        """How much of all rounds is behind us, from 0 to 1."""
        planned = sum(run.rounds for run in self.runs.values())
        return 1 - sum(run.rounds_left for run in self.runs.values()) / planned if planned else 1.0

    @property
    def seconds_gone(self) -> float:
        """Time since the start."""
        return self.clock() - self.started

    @property
    def seconds_left(self) -> float | None:
        """Predict the rest; None until a round has been measured.

        Methods cost differently: each is predicted by its own rounds, and one that has not run
        yet by the mean of those that have.
        """
        paces = {label: pace for label in self.labels if (pace := self._pace(label)) is not None}
        if not paces:
            return None
        typical = sum(paces.values()) / len(paces)
        left = sum(run.rounds_left * paces.get(run.label, typical) for run in self.runs.values())
        under_way = self.clock() - self.heard if self.running else 0.0
        return max(0.0, left - under_way)

    def _pace(self, label: str) -> float | None:
        runs = self.of(label)
        measured = sum(run.measured for run in runs)
        return sum(run.seconds for run in runs) / measured if measured else None

    def _since_heard(self) -> float:
        before, self.heard = self.heard, self.clock()
        return self.heard - before
