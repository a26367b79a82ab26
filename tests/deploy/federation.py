"""Deployments for tests, and the real programs on loopback."""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import tomli_w

from motet.config import Experiment, experiment_from_dict
from motet.deploy._control import Control
from motet.deploy._environment import program_folder
from motet.deploy._layout import LOOPBACK, PACKAGE, Deployment
from motet.deploy._loopback import SERVER_APP, SUPERLINK, Loopback, site_process, status_of
from motet.deploy._processes import MARK, Processes
from motet.deploy._submission import app_settings
from motet.deploy._writing import Draft

APPS = Path(__file__).parent / "apps"
TIMEOUT_S = 900.0  # a CI machine may be busy with other things
DEADLINE_S = 300.0


def small_experiment(
    method: str = "fedper", *, clients: int = 4, rounds: int = 3, **more: Any
) -> Experiment:
    """Digits among four clients, with a small network."""
    return experiment_from_dict(
        {
            "run": {"rounds": rounds, "evaluate_every": rounds},
            "method": {"name": method, **more},
            "data": {"name": "digits", "partition": {"name": "iid", "clients": clients}},
            "model": {"name": "mlp", "hidden": [8]},
        }
    )


def write_deployment(path: Path, experiment: Experiment | None = None, **settings: Any) -> Draft:
    """Write a deployment as `motet deploy init` does."""
    about = {"name": "small", "host": "localhost", "port": 8443, **settings}
    draft = Draft.of(experiment or small_experiment(), path, **about)
    draft.write()
    return draft


def custom_app(
    deployment: Deployment, path: Path, module: str, sides: Sequence[str] = ("server", "client")
) -> Path:
    """Copy the deployment's app, with some of its sides from a module of `apps`."""
    shutil.copytree(deployment.app, path)
    shutil.copy(APPS / f"{module}.py", path / PACKAGE)
    for side in sides:
        shim = f"from {PACKAGE}.{module} import {side}_app\n\napp = {side}_app()\n"
        (path / PACKAGE / f"{side}_app.py").write_text(shim)
    return path


def add_setting(app: Path, name: str, value: str) -> None:
    """Declare one more setting: Flower refuses those that an app does not name."""
    project = (app / "pyproject.toml").read_text()
    (app / "pyproject.toml").write_text(project + f"{name} = {json.dumps(value)}\n")


def hostile_app(deployment: Deployment, path: Path) -> Path:
    """Copy the deployment's app, with clients that follow the settings `tricks` and `until`."""
    app = custom_app(deployment, path, "hostile", sides=["client"])
    add_setting(app, "tricks", "{}")
    add_setting(app, "until", "")
    return app


def run_command(words: Sequence[str], folder: Path) -> str:
    """Run a command of a page as it is written there, and return what it says."""
    path = f"{program_folder()}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (words, done.stderr)
    assert "Traceback" not in done.stderr
    return done.stderr


class Behind(BaseHTTPRequestHandler):
    """Takes the place of the SuperLink."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *about: Any) -> None:
        pass


@contextmanager
def superlink(certificates: Path) -> Iterator[int]:
    """Something that answers over TLS, with the certificate of the deployment's server."""
    with ThreadingHTTPServer((LOOPBACK, 0), Behind) as server:
        identity = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        identity.load_cert_chain(certificates / "server.pem", certificates / "server.key")
        server.socket = identity.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


class Programs(Loopback):
    """A running federation to which experiments can be submitted one after another."""

    def begin(self, sites: Sequence[str]) -> None:
        self.start_server()
        self.register(sites)
        for site in sites:
            self.start_site(site)
        self.await_online(sites)

    def submit(self, name: str, *, app: Path | None = None, **settings: Any) -> int:
        """Submit a run that keeps its results in `folder / name`; return its number."""
        defaults = {
            "experiment": name,
            "config": app_settings(self.deployment)["config"],
            "out": str(self.folder / name),
            "clients": ",".join(self.deployment.sites),
            "deadline-s": DEADLINE_S,
        }
        path = self.folder / f"{name}.toml"
        path.write_text(tomli_w.dumps(defaults | settings))
        return self.control.submit(app or self.deployment.app, path)

    def await_end(self, number: int) -> str:
        """Wait until a run has ended, and return how."""
        # A query of the SuperLink starts a program, so wait until the run's own has ended.
        server = self.server()
        await_that(lambda: not is_at_work(server))
        await_that(lambda: self.control.run(number).is_over, pause_s=1.0)
        return self.control.run(number).status

    def server(self) -> psutil.Process:
        """Wait until the server of a run is at work, and return its process."""
        await_that(self.is_running)
        (server,) = self.processes.members(SUPERLINK, SERVER_APP)
        return server

    def completed(self, number: int) -> None:
        """Wait until a run has ended well."""
        status = self.await_end(number)
        assert status == "finished:completed", self.control.log(number)

    def rounds(self, name: str) -> list[dict[str, Any]]:
        """Read the rounds on record."""
        path = self.folder / name / "rounds.jsonl"
        return [json.loads(x) for x in path.read_text().splitlines()] if path.exists() else []

    def workers(self, site: str) -> list[psutil.Process]:
        """List the processes that do a site's work at this moment."""
        return self.processes.members(site_process(site), "flwr-clientapp")


def await_that(holds: Callable[[], bool], *, pause_s: float = 0.1) -> None:
    """Wait until a condition holds, even on a busy machine."""
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(pause_s)


def answers(deployment: Deployment) -> bool:
    """Whether the SuperLink of a deployment is up; asking Flower would start a program."""
    trust = ssl.create_default_context(cafile=deployment.authority)
    return status_of(f"https://{LOOPBACK}:{deployment.superlink_port}/health", trust) == 200


def await_run(processes: Processes, name: str, control: Control) -> None:
    """Wait until the newest run has ended; its server app is below the program `name`."""

    def has_ended() -> bool:  # asked only while no server is at work: it starts a program
        servers = processes.members(name, SERVER_APP)
        return not any(map(is_at_work, servers)) and control.runs()[0].is_over

    await_that(has_ended, pause_s=1.0)


def is_at_work(process: psutil.Process) -> bool:
    """Whether a process exists and is not a zombie."""
    return state_of(process) not in (None, psutil.STATUS_ZOMBIE)


def zombies_among(numbers: Collection[int]) -> list[psutil.Process]:
    """List the zombies among `numbers`; other tests (of Ray, say) may leave their own."""
    children = psutil.Process().children(recursive=True)
    ours = [child for child in children if child.pid in numbers]
    return [child for child in ours if state_of(child) == psutil.STATUS_ZOMBIE]


def state_of(process: psutil.Process) -> str | None:
    try:
        return process.status()
    except psutil.NoSuchProcess:
        return None


def carriers(mark: str) -> list[psutil.Process]:
    """List the processes that carry the mark of a federation."""
    return [process for process in psutil.process_iter() if mark_of(process) == mark]


def mark_of(process: psutil.Process) -> str | None:
    try:
        return process.environ().get(MARK)
    except (psutil.Error, OSError):  # another user's, or gone in the meantime
        return None
