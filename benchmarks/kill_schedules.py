"""Kill the programs of a real federation at random moments, and compare its result.

    python benchmarks/kill_schedules.py [SCHEDULES [FIRST_SEED]]        # 20 and 0 unless given

SuperLink, executor, path filter and sites on loopback, over TLS with keys, as in production: the
executor of runs is a process of its own, every program is restarted when it ends, and a run that
failed is submitted again. A schedule kills a SuperLink, the SuperNodes of sites and the ServerApp
(SIGKILL) in a seeded order and at seeded moments. Server, private states and test losses must be
those of the same experiment in one process, to the last bit. Two schedules run at a time, since
most of the time is spent waiting: Flower refuses a restarted SuperNode for up to a minute.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil

from motet._engine.records import read_scores
from motet.config import experiment_from_dict
from motet.deploy import _commands as commands
from motet.deploy._certificates import write_shared_secret
from motet.deploy._loopback import SERVER_APP, SUPERLINK, Loopback, site_process
from motet.deploy._runtime.agreement import Agreement
from motet.deploy._runtime.directory import read_server
from motet.deploy._runtime.private import PrivateFile
from motet.deploy._submission import agreed_in, write_settings
from motet.deploy._writing import Draft
from motet.errors import StateError
from motet.testing._comparing import require_same

SITES, ROUNDS, METHOD = 2, 2, "fedper"
KILLS = 3  # of every schedule
DEADLINE_S = 45.0  # of an attempt; replies to earlier attempts count
RESTART_S = 15.0  # after a program has ended by itself, as a refused SuperNode does at once
GIVE_UP_S = 900.0
SUPEREXEC, SERVER = "superexec", "serverapp"


class Kill(NamedTuple):
    """One event of a schedule."""

    program: str
    after_round: int  # the number of rounds on record before it may happen
    delay_s: float  # since then
    pause_s: float  # until the program is started again


def schedule(seed: int, sites: tuple[str, ...], kills: int = KILLS) -> list[Kill]:
    """Draw which programs are killed, when and in which order."""
    rng = np.random.default_rng([17, seed])
    programs = [SUPERLINK, SERVER, *map(site_process, sites)]
    drawn = [
        Kill(
            programs[int(rng.integers(len(programs)))],
            int(rng.integers(ROUNDS)),
            float(rng.uniform(0.0, 8.0)),
            float(rng.uniform(0.0, 3.0)),
        )
        for _ in range(kills)
    ]
    return sorted(drawn, key=lambda kill: (kill.after_round, kill.delay_s))


def small_experiment(sites: int = SITES):
    """Describe an experiment whose result is not trivial: personal heads, and uneven data."""
    return experiment_from_dict(
        {
            "run": {"rounds": ROUNDS, "evaluate_every": ROUNDS},
            "method": {"name": METHOD},
            "data": {"name": "digits", "partition": {"name": "iid", "clients": sites}},
            "model": {"name": "mlp", "hidden": [8]},
        }
    )


class Supervised(Loopback):
    """A federation as in production: runs have an executor of their own."""

    def start_superlink(self) -> None:
        """Start the SuperLink; runs go on while it is down."""
        command = commands.superlink(
            self.deployment.certificates,
            port=self.superlink_port,
            database=self.folder / "superlink.db",
        )
        self._start(SUPERLINK, commands.resumable(command, self._secret))
        self._await_answer(SUPERLINK, self.superlink_port, "/health", 200)

    def start_executor(self) -> None:
        """Start the executor of runs."""
        trust = self.deployment.certificates
        self._start(
            SUPEREXEC, commands.superexec(trust, port=self.superlink_port, secret=self._secret)
        )

    def check_alive(self) -> None:
        """Accept programs that have ended: they are restarted."""

    @property
    def _secret(self) -> Path:
        path = self.folder / "superexec.secret"
        if not path.exists():
            write_shared_secret(path)
        return path

    def servers(self) -> list[psutil.Process]:
        """List the server apps that are at work."""
        return self.processes.members(SUPEREXEC, SERVER_APP)


@dataclass
class Supervisor:
    """Carries out a schedule, restarts what has ended, and submits the run until it completes."""

    federation: Supervised
    settings: Path
    out: Path
    kills: list[Kill]
    sites: tuple[str, ...]
    restarts: dict[str, float] = field(default_factory=dict)  # program -> when
    began: dict[int, float] = field(default_factory=dict)  # when a number of rounds was on record
    killed: list[Kill] = field(default_factory=list)
    run: int = 0
    submitted: int = 0
    asked: float = 0.0

    def play(self) -> None:
        """Run until a run has completed."""
        end = time.monotonic() + GIVE_UP_S
        while not self._is_completed():
            assert time.monotonic() < end, "the run did not complete in time"
            self._kill_what_is_due()
            self._restart_what_is_due()
            time.sleep(0.2)
        assert self.killed, "the run completed before anything was killed"

    def _kill_what_is_due(self) -> None:
        now, done = time.monotonic(), self._rounds()
        if self.federation.servers():  # the run is at work
            self.began.setdefault(done, now)
        for kill in list(self.kills):
            start = min((t for n, t in self.began.items() if n >= kill.after_round), default=now)
            if now - start > kill.delay_s and self._has_killed(kill):
                self.kills.remove(kill)
                self.killed.append(kill)

    def _has_killed(self, kill: Kill) -> bool:
        if kill.program == SERVER:
            return self._kill_server()
        if kill.program in self.restarts:
            return False  # it is down already
        self.federation.processes.kill(kill.program)
        self.restarts[kill.program] = time.monotonic() + kill.pause_s
        return True

    def _kill_server(self) -> bool:
        servers = self.federation.servers()
        for server in servers:
            with contextlib.suppress(psutil.NoSuchProcess):
                server.kill()
        if servers:
            self.run = 0  # submitted again, as an operator does
        return bool(servers)

    def _restart_what_is_due(self) -> None:
        now = time.monotonic()
        for name in self.federation.processes.ended():
            self.federation.processes.kill(name)  # and what it has left behind
            self.restarts[name] = now + RESTART_S
        for name in [name for name, due in self.restarts.items() if due <= now]:
            del self.restarts[name]
            if name == SUPERLINK:
                self.federation.start_superlink()
            elif name == SUPEREXEC:
                self.federation.start_executor()
            else:
                (site,) = (site for site in self.sites if site_process(site) == name)
                self.federation.start_site(site)

    def _is_completed(self) -> bool:
        if time.monotonic() - self.asked < 3.0 or SUPERLINK in self.restarts:
            return False
        if self.run and self.federation.servers():
            return False  # at work; asking would start a program
        self.asked = time.monotonic()
        with contextlib.suppress(StateError):  # the SuperLink may be busy, or down
            if not self.run:
                app = self.federation.deployment.app
                self.run = self.federation.control.submit(app, self.settings)
                self.submitted += 1
            status = self.federation.control.run(self.run)
            if status.is_over and status.status != "finished:completed":
                self.run = 0
            return status.status == "finished:completed"
        return False

    def _rounds(self) -> int:
        path = self.out / "rounds.jsonl"
        return path.read_text().count("\n") if path.exists() else 0


def play_schedule(folder: Path, kills: list[Kill]) -> Supervisor:
    """Play a schedule with a new federation, and require the result of an uninterrupted run."""
    experiment = small_experiment()
    draft = Draft.of(experiment, folder / "net", name="killed", host="localhost", port=8443)
    draft.write()
    settings, out = folder / "settings.toml", folder / "run"
    sites = draft.deployment.sites
    write_settings(
        settings,
        draft.deployment,
        out=out,
        sites=sites,
        min_clients=len(sites),
        deadline_s=DEADLINE_S,
    )
    settings.write_text(settings.read_text() + "attempts = 50\n")
    agreed = agreed_in(settings, draft.deployment)
    with Supervised(draft.deployment, folder / "programs", agreed) as federation:
        federation.start_server()
        federation.start_executor()
        federation.register(sites)
        for site in sites:
            federation.start_site(site)
        supervisor = Supervisor(federation, settings, out, list(kills), sites)
        supervisor.play()
        (folder / "server.log").write_text(federation.control.log(supervisor.run))
    _require_the_result(draft, folder, out)
    return supervisor


def _require_the_result(draft: Draft, folder: Path, out: Path) -> None:
    run = replace(draft.experiment.run, backend="serial")
    oracle = replace(draft.experiment, run=run).start(draft.federation)
    for _ in range(ROUNDS):
        oracle.advance()
    agreement = Agreement.from_text(draft.deployment.experiment, draft.config)
    setting = agreement.setting(agreement.empty_federation(draft.deployment.sites))
    require_same(oracle.server, read_server(out, agreement), "the server's state")
    for site in draft.deployment.sites:
        state = folder / "programs" / "state" / site
        private = PrivateFile.of(state, agreement.experiment, site, agreement.agreed)
        kept = private.read(setting.fresh_client(site))
        assert kept is not None
        require_same(oracle.clients[site], kept.after, f"what {site} keeps")
    scores = {s.client: s.loss for s in read_scores(out / "clients.parquet") if s.split == "test"}
    expected = {row.client: row.loss for row in oracle.evaluate("test").rows}
    assert scores == expected, f"test losses: {scores}, expected {expected}"
    lines = [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]
    replied = {line["round"]: sorted(line["replied"]) for line in lines}
    assert replied == dict.fromkeys(range(1, ROUNDS + 1), sorted(draft.deployment.sites)), replied


def main(schedules: int = 20, first: int = 0) -> None:
    """Play the schedules, and print a line for each."""
    names = tuple(str(number) for number in range(SITES))

    def play(seed: int) -> str:
        began, kills = time.monotonic(), schedule(seed, names)
        folder = tempfile.mkdtemp()
        try:
            done = play_schedule(Path(folder), kills)
        except Exception as reason:
            result = f"FAILED ({folder}): {type(reason).__name__}: {reason}"
            traceback.print_exception(reason)
        else:
            result, kills = f"the same result, submitted {done.submitted} times", done.killed
            shutil.rmtree(folder)
        order = ", ".join(f"{k.program} (round {k.after_round + 1})" for k in kills)
        return f"schedule {seed}: {order}: {result}, {time.monotonic() - began:.0f} s"

    with ThreadPoolExecutor(2) as pool:
        for line in pool.map(play, range(first, first + schedules)):
            print(line, flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
