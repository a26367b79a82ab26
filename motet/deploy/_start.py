"""`motet deploy start`: checks a site or a server, and runs its program with a readable log."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import NamedTuple

from motet._core.atomic import make_private_folder
from motet.deploy import _commands as commands
from motet.deploy import _preflight as preflight
from motet.deploy._environment import environment
from motet.deploy._layout import RECORD, Deployment
from motet.deploy._logs import LogWriter
from motet.deploy._site_settings import SiteSettings, pinned_at

SECRET, DATABASE = "superexec.secret", "superlink.db"
DRAIN_S = 5.0  # for the last lines of a program that has ended
PRIVATE = 0o077  # umask: what a program writes is for its own account alone


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
    there = folder.resolve()
    if (there / RECORD).exists():
        return _prepared_superlink(Deployment.open(there), resumable=resumable)
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
    """Run a program until it ends, and return its exit code; 0 if it was asked to stop."""
    make_private_folder(program.home)
    if program.remark is not None:
        log.write("warning", program.remark)
    level = {"FLWR_LOG_LEVEL": "DEBUG"} if log.level == "debug" else {}
    running = subprocess.Popen(
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
    # In a thread, since orphans of the program may hold its output open after it has ended.
    reader = Thread(target=_pass_on, args=(running, log), daemon=True)
    with _passing_signals_to(running) as asked:
        reader.start()
        code = running.wait()
    reader.join(DRAIN_S)
    if asked:
        return 0
    log.write("error", f"it ended with code {code}.")
    return code if code >= 0 else 128 - code


def _pass_on(running: subprocess.Popen[str], log: LogWriter) -> None:
    assert running.stdout is not None
    for line in running.stdout:
        log.pass_on(line)


@contextmanager
def _passing_signals_to(running: subprocess.Popen[str]) -> Iterator[list[int]]:
    """Pass signals to stop on to a program, and list them."""
    asked: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        asked.append(number)
        running.terminate()

    previous = {kind: signal.signal(kind, stop) for kind in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for kind, handler in previous.items():
            signal.signal(kind, handler)
