"""A whole federation on this machine: SuperLink, path filter and sites, as the real programs."""

from __future__ import annotations

import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote

from motet.closing import Closing
from motet.deploy import commands
from motet.deploy.commands import LOOPBACK
from motet.deploy.control import Control
from motet.deploy.environment import environment
from motet.deploy.layout import Deployment
from motet.deploy.processes import Processes
from motet.errors import StateError

PATIENCE_S = 180.0  # for a program to be ready, on a machine that is busy
SUPERLINK, FILTER = "superlink", "path-filter"


class Loopback(Closing):
    """Starts the programs of a deployment on loopback, and ends them with the `with` block.

    Attributes:
        deployment: What is run, and with which certificates and keys.
        folder: Where logs, databases and the private state of the sites go.
        control: The operator's way in, past the path filter.
        processes: What is running, by name.
        superlink_port: The SuperLink's own port.
        port: The path filter's port, to which sites connect.
    """

    def __init__(self, deployment: Deployment, folder: Path) -> None:
        self.deployment, self.folder = deployment, folder
        self.superlink_port, self.port = free_ports(2)
        self.processes = Processes(folder / "logs")
        address = f"{LOOPBACK}:{self.superlink_port}"
        self.control = Control.of(folder / "flower", address, deployment.authority)

    def start_server(self) -> None:
        """Start the SuperLink and the door in front of it, and wait until both answer."""
        self.start_superlink()
        self.start_filter()

    def start_superlink(self) -> None:
        """Start the SuperLink; what it knew before, it knows again."""
        command = commands.superlink(
            self.deployment.certificates,
            port=self.superlink_port,
            database=self.folder / "superlink.db",
        )
        self._start(SUPERLINK, command)
        self._await_answer(SUPERLINK, self.superlink_port, "/health", 200)

    def start_filter(self) -> None:
        """Start the door."""
        command = commands.path_filter(
            self.deployment.path,
            host=LOOPBACK,
            port=self.port,
            superlink_port=self.superlink_port,
        )
        self._start(FILTER, command)
        self._await_answer(FILTER, self.port, "/", 405)

    def register(self, sites: Sequence[str]) -> None:
        """Let these sites take part, each with its own key."""
        keys = [self.deployment.site(site) / "site.key.pub" for site in sites]
        with ThreadPoolExecutor(2) as side_by_side:
            list(side_by_side.map(self.control.register, sites, keys))

    def start_site(self, site: str) -> None:
        """Start one site, with its data and what it has kept."""
        folder, server = self.deployment.site(site), f"{LOOPBACK}:{self.port}"
        settings = {
            "client": site,
            "data": str(self.deployment.data(site)),
            "state-dir": str(self.folder / "state" / quote(site, safe=" ")),
        }
        command = commands.supernode(folder, server=server, port=free_ports(1)[0])
        self._start(site_process(site), [*command, *commands.node_config(settings)])

    def await_online(self, sites: Sequence[str]) -> None:
        """Wait until these sites are connected."""

        def missing() -> list[str]:
            self.check_alive()
            online = {node.name for node in self.control.nodes() if node.status == "online"}
            return sorted(set(sites) - online)

        await_until(lambda: not missing(), lambda: f"no contact with {', '.join(missing())}")

    def check_alive(self) -> None:
        """Refuse to wait for programs that have ended."""
        for name, code in self.processes.ended().items():
            raise StateError(
                f"{name} ended with code {code}: {last_line(self.processes.log(name))} "
                f"See {self.processes.log(name)}."
            )

    def close(self) -> None:
        """End all programs."""
        self.processes.close()

    def _start(self, name: str, command: Sequence[str]) -> None:
        # One thread each: all programs of the federation share this machine's cores.
        home = self.folder / "flower" / name
        self.processes.start(name, command, environment(home, OMP_NUM_THREADS="1"))

    def _await_answer(self, name: str, port: int, path: str, status: int) -> None:
        url = f"https://{LOOPBACK}:{port}{path}"
        trust = ssl.create_default_context(cafile=self.deployment.authority)

        def answers() -> bool:
            self.check_alive()
            return status_of(url, trust) == status

        await_until(answers, lambda: f"{name} does not answer at {url}")


def site_process(site: str) -> str:
    """Name the process of a site, and its log."""
    return f"site-{quote(site, safe=' ')}"


def await_until(
    holds: Callable[[], bool], complaint: Callable[[], str], patience_s: float = PATIENCE_S
) -> None:
    """Ask again and again, with growing pauses, until something holds."""
    deadline, pause = time.monotonic() + patience_s, 0.1
    while not holds():
        if time.monotonic() > deadline:
            raise StateError(f"{complaint()} after {patience_s:.0f} s.")
        time.sleep(pause)
        pause = min(2.0, 1.5 * pause)


def status_of(url: str, trust: ssl.SSLContext) -> int | None:
    """Ask for a page, and return the status of the answer; None if there is none."""
    try:
        with urllib.request.urlopen(url, context=trust, timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        return refused.code
    except OSError:
        return None


def last_line(log: Path) -> str:
    """Quote the last thing a program has said."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.exists() else []
    said = [line.strip() for line in lines if line.strip()]
    return said[-1] if said else "it said nothing."


def free_ports(count: int) -> list[int]:
    """Find ports that nobody uses now: all are held at once, so that no two are the same."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((LOOPBACK, 0))
        return [int(one.getsockname()[1]) for one in sockets]
