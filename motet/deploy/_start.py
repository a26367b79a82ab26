"""`motet deploy start`: checks a site or a server, and runs its program with a readable log."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import NamedTuple

from motet._core.atomic import make_private_folder
from motet._core.real_paths import real_path
from motet.deploy import _commands as commands
from motet.deploy import _preflight as preflight
from motet.deploy._environment import environment
from motet.deploy._layout import RECORD, Deployment
from motet.deploy._logs import LogWriter
from motet.deploy._site_settings import SETTINGS, SiteSettings, pinned_at
from motet.errors import RequestError

SECRET, DATABASE = "superexec.secret", "superlink.db"
DRAIN_S = 5.0  # for the last lines of a program that has ended
PRIVATE = 0o077  # umask: what a program writes is for its own account alone
# Flower's words about a site that seems to be connected, or whose key is not registered.
REFUSED = "Failed to activate SuperNode"
PATIENCE_S, AGAIN_S = 120.0, 10.0  # for how long, and how often such a site is started again
TRYING_AGAIN = (
    "the server does not let this site in yet: after a crash it takes it for connected for up to a "
    f"minute, or the site's key is not registered. Trying again in {AGAIN_S:.0f} s."
)
STILL_REFUSED = (
    f"the server has not let this site in for {PATIENCE_S:.0f} s: its key is not registered, or no "
    "longer, or the site also runs on another machine. Ask the operator, who sees all sites with "
    "`motet deploy status`."
)


class Program(NamedTuple):
    """A program that is ready to be started."""

    name: str
    command: list[str]
    home: Path  # for Flower's own files
    remark: str | None = None  # what is not right yet, and may become so


def prepared(folder: Path, *, resumable: bool = False) -> Program:
    """Check everything that the program of a folder needs.

    Args:
        folder: Of a site, or a deployment.
        resumable: For a deployment: runs have an executor of their own, and survive the SuperLink.
    """
    preflight.check_folder(folder)
    there = real_path(folder)
    if (there / RECORD).exists():
        return _prepared_superlink(Deployment.open(there), resumable=resumable)
    if not (there / SETTINGS).exists():
        raise RequestError(
            f"{folder} is neither the folder of a site ({SETTINGS}) nor a deployment ({RECORD})."
        )
    return _prepared_site(there)


def _prepared_site(folder: Path) -> Program:
    settings = SiteSettings.read(folder)
    agreed, _ = pinned_at(folder)
    preflight.check_site_key(folder / settings.key)
    fix = "Ask the operator for the new ca.crt (`motet deploy renew`)"
    preflight.check_certificate(folder / "ca.crt", fix)
    data, state = folder / settings.data, folder / settings.state
    if data.is_dir() or not data.exists():
        preflight.check_folder(data)
    make_private_folder(state)
    preflight.check_folder(state, writing=True)
    preflight.check_port_is_free(settings.port, "Choose another port in site.toml")
    remark = preflight.connection_trouble(settings.server, folder / "ca.crt")
    command = settings.command(folder, agreed)
    return Program(f"site {settings.name}", command, folder / "flower", remark)


def _prepared_superlink(deployment: Deployment, *, resumable: bool) -> Program:
    check_server_files(deployment)
    port, folder = deployment.superlink_port, deployment.path
    preflight.check_folder(folder, writing=True)
    preflight.check_port_is_free(port, "Change superlink_port in deployment.toml")
    command = commands.superlink(deployment.certificates, port=port, database=folder / DATABASE)
    if resumable:
        command = commands.resumable(command, folder / SECRET)
    return Program("superlink", command, deployment.home)


def check_server_files(deployment: Deployment) -> None:
    """Check the certificates and the key of a server."""
    fix = "Run `motet deploy renew`, and restart the server"
    preflight.check_certificate(deployment.authority, fix + "; with --authority")
    preflight.check_certificate(deployment.certificates / "server.pem", fix)
    preflight.check_server_key(deployment.certificates / "server.key")


def run_program(program: Program, log: LogWriter) -> int:
    """Run a program until it ends, and return its exit code; 0 if it was asked to stop.

    After a site was killed, the server takes it for connected for up to a minute and refuses it
    until then; so a site that is refused is started again for a while.
    """
    make_private_folder(program.home)
    if program.remark is not None:
        log.write("warning", program.remark)
    with _stoppable() as stop:
        code, is_refused = _run_once(program, log, stop)
        last = time.monotonic() + PATIENCE_S
        while is_refused and time.monotonic() < last:
            log.write("warning", TRYING_AGAIN)
            if not stop.sleep(AGAIN_S):
                break
            code, is_refused = _run_once(program, log, stop)
    if stop.asked:
        return 0
    if is_refused:
        log.write("error", STILL_REFUSED)
    log.write("error", f"it ended with code {code}.")
    return code if code >= 0 else 128 - code


class _Stop:
    """Whether somebody has asked for an end, and the program that has to hear of it."""

    def __init__(self) -> None:
        self.asked = False
        self.running: subprocess.Popen[str] | None = None

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        self.asked = True
        if self.running is not None:
            self.running.terminate()

    def sleep(self, seconds: float) -> bool:
        """Wait, but no longer than until somebody asks; return whether nobody has."""
        end = time.monotonic() + seconds
        while not self.asked and time.monotonic() < end:
            time.sleep(0.1)
        return not self.asked


@contextmanager
def _stoppable() -> Iterator[_Stop]:
    """Pass signals to stop on to the program that is running."""
    stop = _Stop()
    previous = {kind: signal.signal(kind, stop) for kind in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for kind, handler in previous.items():
            signal.signal(kind, handler)


def _run_once(program: Program, log: LogWriter, stop: _Stop) -> tuple[int, bool]:
    """Run a program; return its code, and whether the server did not let its site in."""
    level = {"FLWR_LOG_LEVEL": "DEBUG"} if log.level == "debug" else {}
    running = stop.running = subprocess.Popen(
        program.command,
        env=environment(program.home, **level),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        umask=PRIVATE,
        start_new_session=True,  # Ctrl-C comes to this process, which passes it on
    )
    if stop.asked:  # while it was being started
        running.terminate()
    # In a thread, since orphans of the program may hold its output open after it has ended.
    refusals: list[str] = []
    reader = Thread(target=_pass_on, args=(running, log, refusals), daemon=True)
    reader.start()
    code = running.wait()
    reader.join(DRAIN_S)
    return code, bool(refusals)


def _pass_on(running: subprocess.Popen[str], log: LogWriter, refusals: list[str]) -> None:
    assert running.stdout is not None
    with running.stdout as lines:
        for line in lines:
            log.pass_on(line)
            if REFUSED in line:
                refusals.append(line)
