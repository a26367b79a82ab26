"""A whole federation on this machine: the real SuperLink, path filter and sites, on loopback."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from motet.deploy import _commands as commands
from motet.deploy._control import Control
from motet.deploy._environment import environment
from motet.deploy._layout import LOOPBACK, Deployment
from motet.deploy._limits import PER_ADDRESS
from motet.deploy._processes import Processes
from motet.deploy._runtime.pinning import ANY
from motet.deploy._site_settings import SiteSettings
from motet.errors import StateError

TIMEOUT_S = 180.0  # for a program to be ready, on a busy machine
SUPERLINK, FILTER = "superlink", "path-filter"
SERVER_APP = "flwr-serverapp"  # in the command of a run's process
CONNECTED, HINT_S = (
    "SuperNode ID",
    15.0,
)  # Flower's words in a site's log; how long to wait for them


class Loopback(AbstractContextManager["Loopback"]):
    """The programs of a deployment on loopback; they end with the `with` block.

    Attributes:
        deployment: The deployment, with its certificates and keys.
        folder: Folder for logs, databases and the private state of the sites.
        control: The operator's connection to the SuperLink, which bypasses the path filter.
        processes: The running programs, by name.
        superlink_port: The SuperLink's own port.
        port: The path filter's port, to which sites connect.
        agreed: Hash of the experiment that the sites accept; `ANY`: of any.
    """

    def __init__(self, deployment: Deployment, folder: Path, agreed: str = ANY) -> None:
        self.deployment, self.folder, self.agreed = deployment, folder, agreed
        self.superlink_port, self.port = free_ports(2)
        self.processes = Processes(folder / "logs")
        self._log_sizes: dict[str, int] = {}  # when each site was last started
        address = f"{LOOPBACK}:{self.superlink_port}"
        self.control = Control.of(folder / "flower", address, deployment.authority)

    def start_server(self) -> None:
        """Start the SuperLink and the path filter, and wait until both answer."""
        self.start_superlink()
        self.start_filter()

    def start_superlink(self) -> None:
        """Start the SuperLink, with the database of an earlier start if there is one."""
        command = commands.superlink(
            self.deployment.certificates,
            port=self.superlink_port,
            database=self.folder / "superlink.db",
        )
        self._start(SUPERLINK, command)
        self._await_answer(SUPERLINK, self.superlink_port, "/health", 200)

    def start_filter(self) -> None:
        """Start the path filter."""
        command = commands.path_filter(
            self.deployment.path,
            host=LOOPBACK,
            port=self.port,
            superlink_port=self.superlink_port,
        )
        # All sites of a trial have the same address.
        limit = max(PER_ADDRESS, 8 * len(self.deployment.sites))
        command += ["--per-address", str(limit)]
        self._start(FILTER, command)
        self._await_answer(FILTER, self.port, "/", 405)

    def register(self, sites: Sequence[str]) -> None:
        """Register these sites, each with its own key."""
        keys = [self.deployment.site(site) / "site.key.pub" for site in sites]
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(self.control.register, sites, keys))

    def start_site(self, site: str) -> None:
        """Start one site, with its data and its private state."""
        folder = self.deployment.site(site)
        settings = replace(
            SiteSettings.read(folder),
            server=f"{LOOPBACK}:{self.port}",
            port=free_ports(1)[0],
            state=str(self.folder / "state" / quote(site, safe=" ")),
        )
        log = self.processes.log(site_process(site))
        self._log_sizes[site] = log.stat().st_size if log.exists() else 0
        self._start(site_process(site), settings.command(folder, self.agreed))

    def await_online(self, sites: Sequence[str]) -> None:
        """Wait until these sites are connected."""

        def missing() -> list[str]:
            self.check_alive()
            online = {node.name for node in self.control.nodes() if node.status == "online"}
            return sorted(set(sites) - online)

        # Each look starts a program, so look at the logs first. They are only a hint: another
        # version of Flower may use other words.
        with contextlib.suppress(StateError):
            await_until(lambda: all(map(self._seems_connected, sites)), str, HINT_S)
        await_until(
            lambda: not missing(),
            lambda: f"not connected: {', '.join(missing())}",
            first_pause_s=1.0,
        )

    def _seems_connected(self, site: str) -> bool:
        self.check_alive()
        with self.processes.log(site_process(site)).open("rb") as log:
            log.seek(self._log_sizes[site])
            return CONNECTED.encode() in log.read()

    def is_running(self) -> bool:
        """Whether the server app of a run is at work."""
        return bool(self.processes.members(SUPERLINK, SERVER_APP))

    def check_alive(self) -> None:
        """Raise an error if a program has ended."""
        for name, code in self.processes.ended().items():
            raise StateError(
                f"{name} ended with code {code}: {last_line(self.processes.log(name))} "
                f"See {self.processes.log(name)}."
            )

    def __exit__(self, *_: object) -> None:
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
    """Return the name of a site's process and log."""
    return f"site-{quote(site, safe=' ')}"


def await_until(
    holds: Callable[[], bool],
    complaint: Callable[[], str],
    timeout_s: float = TIMEOUT_S,
    first_pause_s: float = 0.1,
) -> None:
    """Poll with growing pauses until a condition holds; raise an error after `timeout_s`."""
    deadline, pause = time.monotonic() + timeout_s, first_pause_s
    while not holds():
        if time.monotonic() > deadline:
            raise StateError(f"{complaint()} after {timeout_s:.0f} s.")
        time.sleep(pause)
        pause = min(2.0, 1.5 * pause)


def status_of(url: str, trust: ssl.SSLContext) -> int | None:
    """Request a page and return the status code; None if there is no answer."""
    try:
        with urllib.request.urlopen(url, context=trust, timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        return refused.code
    except OSError:
        return None


def last_line(log: Path) -> str:
    """Return the last line of a log that is not blank."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.exists() else []
    written = [line.strip() for line in lines if line.strip()]
    return written[-1] if written else "no output."


def free_ports(count: int) -> list[int]:
    """Find unused ports; all are held open at once, so that no two are the same."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((LOOPBACK, 0))
        return [int(one.getsockname()[1]) for one in sockets]
