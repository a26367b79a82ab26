"""What the tests of the Flower back end share: an experiment on a stage of one process."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motet._engine.federation import Run, start
from motet.config import RunChoice
from motet.data import Federation
from motet.deploy._runtime.agreement import Agreement
from motet.deploy._runtime.private import PrivateFile
from motet.deploy._runtime.server_limits import ServerLimits
from motet.deploy._runtime.server_loop import run_server
from motet.deploy._runtime.sitedata import Everywhere
from motet.method import AnyMethod
from motet.testing import World, ragged

with warnings.catch_warnings():  # of packages that Flower imports, about each other
    warnings.simplefilter("ignore", DeprecationWarning)
    from flwr.app import Array, Error, Message  # noqa: F401 - for the tests

    from motet.deploy._runtime.flower_apps import FlowerTransport, client_app, server_app  # noqa: F401
    from motet.testing._loopback import Fault, LoopbackGrid, as_sent

ROUNDS = 3
SEED = 5


@dataclass(frozen=True, eq=False)
class Given:
    """Data that are at hand."""

    data: Federation

    def federation(self) -> Federation:
        return self.data


@dataclass
class Stage:
    """A method, a world, a folder, and the grid between its server and its sites."""

    method: AnyMethod
    world: World
    folder: Path
    run: RunChoice
    terms: dict[str, Any]
    grid: LoopbackGrid

    @classmethod
    def set(
        cls,
        method: AnyMethod,
        folder: Path,
        world: World | None = None,
        *,
        rounds: int = ROUNDS,
        cohort: float = 1.0,
        fault: Fault = as_sent,
        **terms: Any,
    ) -> Stage:
        world = world or ragged()
        run = RunChoice(rounds=rounds, seed=SEED, cohort=cohort, evaluate_every=rounds)
        stage = cls(method, world, folder, run, terms, None)
        nodes = {c: {"client": c, "state-dir": str(folder / c)} for c in world.data.clients}
        stage.grid = LoopbackGrid(client_app(agreement=stage.agreement), nodes, fault=fault)
        return stage

    @property
    def agreement(self) -> Agreement:
        return Agreement(
            experiment="stage",
            method=self.method,
            task=lambda _: self.world.task,
            sites=Everywhere(Given(self.world.data)),
            run=self.run,
        )

    def play(self, transport: FlowerTransport | None = None, **terms: Any) -> Run:
        """Conduct the experiment, as a ServerApp does."""
        all_terms = {"deadline_s": 20.0, **self.terms, **terms}
        transport = transport or FlowerTransport(self.grid, poll_s=0.01)
        return run_server(
            self.agreement, ServerLimits(out=str(self.folder / "out"), **all_terms), transport
        )

    def oracle(self, rounds: int | None = None) -> Run:
        """The same experiment in one process."""
        settings = {"seed": SEED, "cohort": self.run.cohort, "backend": "serial"}
        run = start(
            self.method, self.world.task, self.world.data, rounds=self.run.rounds, **settings
        )
        for _ in range(self.run.rounds if rounds is None else rounds):
            run.advance()
        return run

    def kept(self, client: str, folder: Path | None = None) -> Any:
        """What a client keeps on the disk of its site; None if it never trained."""
        agreement = self.agreement
        setting = agreement.setting_at(client, None)
        file = PrivateFile.of(folder or self.folder / client, "stage", client, agreement.agreed)
        found = file.read(setting.fresh_client(client))
        return None if found is None else found.after
