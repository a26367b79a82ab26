"""A shard: some of a run's clients with their private states, in one process.

The work of a round and its commit are two steps, so that all shards of a run move on together, and
a process that died is replaced by one that does the work again from the same state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from motet._engine.backends.backend import Outcome
from motet._engine.backends.plan.planning import ExecutionPlan
from motet._engine.backends.serial import Serial
from motet._engine.backends.vectorized import Vectorized
from motet._engine.run_spec import Point, RunSpec
from motet._engine.stores.disk import DiskStore
from motet.errors import StateError

STATE = "state.sqlite"
TABLES = ("CREATE TABLE IF NOT EXISTS owner (number INTEGER PRIMARY KEY, run TEXT NOT NULL)",)


class Mark(NamedTuple):
    """The state of a shard: a run, and the number of its commits."""

    run: str
    commits: int

    def __str__(self) -> str:
        return f"commit {self.commits} of run {self.run[:8]}" if self.run else "nothing of any run"


class Blueprint(NamedTuple):
    """What a process needs to know to run clients."""

    setting: RunSpec  # without states
    plan: ExecutionPlan | None  # None: one client after another


class Shard:
    """Trains and serves its clients, and keeps their states in a file below `folder`.

    Every call says which state it expects. A call that is repeated, because its process died or its
    answer was lost, changes nothing that the first one has not changed.
    """

    def __init__(self, blueprint: Blueprint, folder: str) -> None:
        self.folder = Path(folder)
        self.store = DiskStore(self.folder / STATE, tables=TABLES)
        setting = replace(blueprint.setting, store=self.store)
        plan = blueprint.plan
        self.backend = Serial(setting) if plan is None else Vectorized(setting, plan)
        self._trained: Mark | None = None  # from where the work began that waits for its commit
        self._unfinished = False

    def begin(self, mark: Mark) -> None:
        """Forget what the folder holds of earlier runs."""
        self.store.close()
        for path in self.folder.glob(f"{STATE}*"):
            path.unlink()
        self.store.database.write("REPLACE INTO owner VALUES (0, ?)", mark.run)
        self.store.commit()

    def train(self, mark: Mark, down: Any, number: int, cohort: Sequence[str]) -> Outcome:
        """Do the work of a round; what clients keep of it waits for `commit`."""
        self._return_to(mark)
        self._unfinished = True
        info = self.backend.setting.info(number, tuple(cohort))
        outcome = self.backend.train(down, info)
        self._refuse_damage()
        self._trained = mark
        return outcome

    def commit(self, mark: Mark) -> bool:
        """Make the work durable; False if this process has not done it."""
        if self._found() == _after(mark):
            return True  # asked twice
        if self._trained != mark:
            return False
        self._commit()
        return True

    def push(self, mark: Mark, clients: Sequence[str], stacked: Any) -> None:
        """Keep the rows of a stack, and make them durable."""
        if self._found() == _after(mark):
            return  # asked twice
        self._return_to(mark)
        self._unfinished = True
        self.store.put_rows(clients, stacked)
        self._commit()

    def read(self, mark: Mark, clients: Sequence[str]) -> dict[str, Any]:
        """Return what those of the clients keep that keep anything."""
        self._return_to(mark)
        found = {client: self.store.get(client) for client in clients if client in self.store}
        self._refuse_damage()
        return found

    def keeping(self, mark: Mark) -> list[str]:
        """List who keeps anything."""
        self._return_to(mark)
        return list(self.store)

    def predict(
        self, mark: Mark, down: Any, number: int, inputs: Mapping[str, Tensor], point: Point
    ) -> list[tuple[str, Tensor]]:
        """Serve clients on inputs of their own."""
        self._return_to(mark)
        info = self.backend.setting.info(number, tuple(inputs), serving=True)
        predictions = self.backend.predict(down, info, inputs, point)
        served = [(client, predicted.clone()) for client, predicted in predictions]
        self._refuse_damage()
        return served

    def predictor(self, mark: Mark, down: Any, number: int, client: str, point: Point) -> Any:
        """Make one client's predictor."""
        self._return_to(mark)
        info = self.backend.setting.info(number, (client,), serving=True)
        personal = self.backend.predictor(down, info, client, point)
        self._refuse_damage()
        return personal

    def _commit(self) -> None:
        self.store.commit()
        self._trained, self._unfinished = None, False

    def _return_to(self, mark: Mark) -> None:
        """Forget what was not committed, and refuse to work from another state."""
        if self._unfinished:
            self.store.close()
            self._trained, self._unfinished = None, False
        found = self._found()
        if found != mark:
            raise StateError(
                f"{self.folder} should hold {mark}, and holds {found}: the process was restarted "
                "on a machine without this folder, or another run uses it. Resume from the last "
                "checkpoint, with a state_dir of its own."
            )

    def _found(self) -> Mark:
        runs = self.store.database.rows((str,), "SELECT run FROM owner")
        return Mark(runs[0][0] if runs else "", self.store.version)

    def _refuse_damage(self) -> None:
        for client, why in self.store.damaged.items():
            raise StateError(
                f'what client "{client}" keeps cannot be read: {why}. Resume from the last '
                "checkpoint."
            )


def _after(mark: Mark) -> Mark:
    return mark._replace(commits=mark.commits + 1)
