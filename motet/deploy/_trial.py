"""`motet deploy trial`: a complete run of a deployment on one machine, with the real programs."""

from __future__ import annotations

import shutil
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motet._core.text import plural
from motet.deploy import _results as results
from motet.deploy._control import Submitted
from motet.deploy._layout import Deployment
from motet.deploy._loopback import Loopback
from motet.deploy._processes import end_marked
from motet.deploy._status import last_error
from motet.deploy._submission import agreed_in, write_settings
from motet.errors import StateError

# Seconds between reads of the run directory, which are cheap, and between queries of the SuperLink,
# each of which starts a program: few while the run's own process is at work.
READ_S, QUERY_S, QUERY_AT_WORK_S = 0.5, 3.0, 60.0
MARK = "mark"  # file with the mark of the processes, to clean up after a crash


@dataclass(frozen=True)
class Stage:
    """A stage of the trial has begun."""

    what: str


@dataclass(frozen=True)
class RoundDone:
    """A round has been recorded."""

    line: dict[str, Any]
    total: int


Event = Stage | RoundDone


@dataclass(frozen=True)
class Trial:
    """One run of a deployment on this machine.

    Attributes:
        deployment: The deployment.
        sites: The sites that take part.
        rounds: Number of rounds; None means the experiment's own.
        deadline_s: Seconds that a round waits for replies.

    Example:
        >>> from pathlib import Path
        >>> from motet.deploy import Deployment
        >>> net = Deployment(Path("net"), "heart", ("basel", "lyon"), "fl.example.org")
        >>> Trial(net, sites=("basel",), rounds=2).out.as_posix()
        'net/trial/run'
    """

    deployment: Deployment
    sites: tuple[str, ...]
    rounds: int | None = None
    deadline_s: float = 300.0

    @property
    def out(self) -> Path:
        """The run directory of the server."""
        return self.deployment.trial / "run"

    def events(self) -> Generator[Event, None, None]:
        """Run the trial and yield its events; its programs end with it, however it ends."""
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
        with Loopback(self.deployment, folder, agreed_in(settings, self.deployment)) as federation:
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
            is_over = run.is_over  # read before the rounds, so that the last pass misses none
            for line in results.rounds(self.out)[seen:]:
                seen += 1
                yield RoundDone(line, total)
            if is_over:
                break
            federation.check_alive()
            time.sleep(READ_S)
            pause_s = QUERY_AT_WORK_S if federation.is_running() else QUERY_S
            if time.monotonic() - asked > pause_s:
                run, asked = federation.control.run(number), time.monotonic()
        _require_completed(federation, run)


def _require_completed(federation: Loopback, run: Submitted) -> None:
    if run.status != "finished:completed":
        why = last_error(federation.control.log(run.number)) or "its log has no error."
        raise StateError(f"the run ended as {run.status}: {why}")


def remove_earlier_trial(deployment: Deployment, *, overwrite: bool) -> None:
    """Remove an earlier trial if `overwrite` is set, and end the processes that it left behind."""
    folder = deployment.trial
    if not folder.exists():
        return
    if not overwrite:
        raise StateError(f"{folder} contains an earlier trial; replace it with --overwrite.")
    if (folder / MARK).exists():
        end_marked((folder / MARK).read_text())
    shutil.rmtree(folder)
