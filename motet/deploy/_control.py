"""The operator's connection to a SuperLink, through Flower's own command line."""

from __future__ import annotations

import json
import subprocess
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import tomli_w

from motet._core.atomic import make_private_folder
from motet.deploy._environment import environment
from motet.deploy._keys import fingerprint
from motet.errors import StateError

CONNECTION = "motet"
ROSTER = "sites.jsonl"
TIMEOUT_S = 120.0
UNREACHABLE = "Connection to the SuperLink is unavailable"  # Flower's words


class Node(NamedTuple):
    """A site as the SuperLink knows it."""

    number: int
    name: str | None  # None: not registered by `Control.register`
    status: str  # "registered", "online", "offline", ...
    registered_at: datetime | None = None  # with its present key
    last_contact: datetime | None = None  # None: never; a site that is online calls every 30 s


class Submitted(NamedTuple):
    """A run as the SuperLink knows it."""

    number: int
    status: str  # "pending", "running", "finished:completed", "finished:failed", ...

    @property
    def is_over(self) -> bool:
        """Whether the run has ended, successfully or not."""
        return self.status.startswith("finished")


@dataclass(frozen=True)
class Control:
    """Client of the control interface of one SuperLink."""

    home: Path

    @classmethod
    def of(cls, home: Path, address: str, authority: Path) -> Control:
        """Configure Flower's command line for the SuperLink at `address`."""
        connection = {"address": address, "root-certificates": str(authority)}
        written = {"default": CONNECTION, CONNECTION: connection}
        make_private_folder(home)
        (home / "config.toml").write_text(tomli_w.dumps({"superlink": written}), encoding="utf-8")
        return cls(home)

    @property
    def is_set_up(self) -> bool:
        """Whether Flower's command line has been configured."""
        return (self.home / "config.toml").exists()

    @property
    def address(self) -> str:
        """The address of the SuperLink."""
        written = tomllib.loads((self.home / "config.toml").read_text(encoding="utf-8"))
        return str(written["superlink"][CONNECTION]["address"])

    def register(self, name: str, public_key: Path) -> int:
        """Register a site by its public key, under this name."""
        mark = fingerprint(public_key)
        answer = self._call("supernode", "register", str(public_key), CONNECTION, "--name", name)
        number = int(answer["node-id"])
        with (self.home / ROSTER).open("a", encoding="utf-8") as roster:
            roster.write(json.dumps({"number": number, "name": name, "key": mark}) + "\n")
        return number

    def unregister(self, number: int) -> None:
        """Refuse a site from now on; if it is connected, its program ends."""
        self._call("supernode", "unregister", str(number), CONNECTION)

    def stop(self, number: int) -> None:
        """Stop a run."""
        self._call("stop", str(number), CONNECTION)

    def key_of(self, node: Node) -> str | None:
        """Return the fingerprint of the key that a site was registered with."""
        return self._roster().get(node.number, {}).get("key")

    def nodes(self) -> list[Node]:
        """List the sites that are registered."""
        known, found = self._roster(), self._call("supernode", "list", CONNECTION)["nodes"]
        nodes = [_node(described, known) for described in found]
        return [node for node in nodes if node.status != "unregistered"]

    def submit(self, app: Path, settings: Path) -> int:
        """Start a run of an app, with settings from a TOML file, and return its number."""
        answer = self._call("run", str(app), CONNECTION, "--run-config", str(settings))
        return int(answer["run-id"])

    def run(self, number: int) -> Submitted:
        """Return the status of one run."""
        (found,) = self._call("list", CONNECTION, "--run-id", str(number))["runs"]
        return _submitted(found)

    def runs(self) -> list[Submitted]:
        """List all runs, the newest first."""
        return [_submitted(found) for found in self._call("list", CONNECTION)["runs"]]

    def log(self, number: int) -> str:
        """Read the log of a run's server app so far."""
        return self._flwr("log", str(number), CONNECTION, "--show").stdout

    def _roster(self) -> dict[int, dict[str, Any]]:
        """Read names and keys of nodes: Flower's own list shows only their numbers."""
        path = self.home / ROSTER
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return {entry["number"]: entry for entry in map(json.loads, lines)}

    def _call(self, *words: str) -> dict[str, Any]:
        what = f"flwr {' '.join(words[:2])}"
        done = self._flwr(*words, "--format", "json")
        if UNREACHABLE in done.stdout + done.stderr:
            raise StateError(
                f"nothing answers at {self.address}, where the SuperLink of this deployment should "
                "be. Start the server (server.sh, or its service), or correct superlink_port in "
                "deployment.toml."
            )
        return _parse_answer(what, done)

    def _flwr(self, *words: str) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                ["flwr", *words],
                env=environment(self.home),  # its PATH includes the folder of `flwr`
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise StateError(f"`flwr {words[0]}` did not answer in {TIMEOUT_S:.0f} s.") from None


def _parse_answer(what: str, done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Parse an answer; `flwr` may report a failure and still exit with code 0."""
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        answer = {"success": False, "error-message": done.stderr or done.stdout}
    if done.returncode or not answer.get("success", False):
        lines = str(answer.get("error-message", "")).strip().splitlines() or ["no message"]
        raise StateError(f"`{what}` failed: {lines[-1].strip().rstrip('.')}.")
    return answer


def _submitted(found: dict[str, Any]) -> Submitted:
    return Submitted(int(found["run-id"]), str(found["status"]))


def _node(found: Mapping[str, Any], known: Mapping[int, Mapping[str, Any]]) -> Node:
    number, status = int(found["node-id"]), str(found["status"])
    return Node(
        number,
        known.get(number, {}).get("name"),
        status,
        _time(found.get("created-at")),
        datetime.now(UTC) if status == "online" else _time(found.get("offline-at")),
    )


def _time(text: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(text or "")
    except ValueError:  # "N/A"
        return None
