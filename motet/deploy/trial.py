"""`motet deploy trial`: the federation as it will be, on one machine, from start to end."""

from __future__ import annotations

import shutil
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motet.deploy import results
from motet.deploy.control import Submitted
from motet.deploy.layout import Deployment
from motet.deploy.loopback import Loopback
from motet.deploy.processes import end_marked
from motet.deploy.status import trouble
from motet.deploy.submission import write_settings
from motet.errors import StateError
from motet.judging.phrases import plural

LOOK_S, ASK_S = 0.5, 5.0  # at files, which costs nothing; at the SuperLink, which starts a program
MARK = "mark"  # file with the mark of the processes, for whoever has to clean up after a crash


@dataclass(frozen=True)
class Stage:
    """Something has begun."""

    what: str


@dataclass(frozen=True)
class RoundDone:
    """A round is on record."""

    line: dict[str, Any]
    total: int


Event = Stage | RoundDone


@dataclass(frozen=True)
class Trial:
    """One run of a deployment on this machine.

    Attributes:
        deployment: What is tried.
        sites: Who takes part.
        rounds: Instead of the experiment's own number.
        deadline_s: Seconds that a round waits for a silent site.
    """

    deployment: Deployment
    sites: tuple[str, ...]
    rounds: int | None = None
    deadline_s: float = 300.0

    @property
    def out(self) -> Path:
        """The run directory that the server writes."""
        return self.deployment.trial / "run"

    def events(self) -> Generator[Event, None, None]:
        """Run the trial, event by event; its programs end with it, however it ends."""
        folder = self.deployment.trial
        folder.mkdir(parents=True)
        settings = folder / "settings.toml"
        total = write_settings(
            settings,
            self.deployment,
            out=self.out,
            sites=self.sites,
            deadline_s=self.deadline_s,
            rounds=self.rounds,
        )
        with Loopback(self.deployment, folder) as federation:
            (folder / MARK).write_text(federation.processes.mark)
            yield from self._start(federation)
            number = federation.control.submit(self.deployment.app, settings)
            yield Stage("running")
            yield from self._watch(federation, number, total)

    def _start(self, federation: Loopback) -> Iterator[Event]:
        yield Stage("starting the server")
        federation.start_server()
        yield Stage(f"starting {plural(len(self.sites), 'site')}")
        federation.register(self.sites)
        for site in self.sites:
            federation.start_site(site)
        federation.await_online(self.sites)

    def _watch(self, federation: Loopback, number: int, total: int) -> Iterator[Event]:
        run, seen, asked = Submitted(number, "pending"), 0, time.monotonic()
        while True:
            is_over = run.is_over  # known before the look at the rounds: the last look misses none
            for line in results.rounds(self.out)[seen:]:
                seen += 1
                yield RoundDone(line, total)
            if is_over:
                break
            federation.check_alive()
            time.sleep(LOOK_S)
            if time.monotonic() - asked > ASK_S:
                run, asked = federation.control.run(number), time.monotonic()
        _require_completed(federation, run)


def _require_completed(federation: Loopback, run: Submitted) -> None:
    if run.status != "finished:completed":
        why = trouble(federation.control.log(run.number)) or "its server said nothing."
        raise StateError(f"the run ended as {run.status}: {why}")


def make_room(deployment: Deployment, *, overwrite: bool) -> None:
    """Remove an earlier trial, and end what it left running if it was killed; ask first."""
    folder = deployment.trial
    if not folder.exists():
        return
    if not overwrite:
        raise StateError(f"{folder} holds an earlier trial; replace it with --overwrite.")
    if (folder / MARK).exists():
        end_marked((folder / MARK).read_text())
    shutil.rmtree(folder)
