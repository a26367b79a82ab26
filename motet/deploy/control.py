"""Flower's own command line, as an operator on the server uses it: register, submit, look."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import tomli_w

from motet.deploy.environment import environment
from motet.errors import StateError

CONNECTION = "motet"
ROSTER = "sites.jsonl"
PATIENCE_S = 120.0


class Node(NamedTuple):
    """A site as the SuperLink knows it."""

    number: int
    name: str | None  # None: registered by somebody else
    status: str  # "registered", "online", "offline", ...


class Submitted(NamedTuple):
    """A run as the SuperLink knows it."""

    number: int
    status: str  # "pending", "running", "finished:completed", "finished:failed", ...

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come of it."""
        return self.status.startswith("finished")


@dataclass(frozen=True)
class Control:
    """A way to the control interface of one SuperLink."""

    home: Path

    @classmethod
    def of(cls, home: Path, address: str, authority: Path) -> Control:
        """Write down where the SuperLink is, in the form that Flower wants it."""
        connection = {"address": address, "root-certificates": str(authority)}
        written = {"default": CONNECTION, CONNECTION: connection}
        home.mkdir(parents=True, exist_ok=True)
        (home / "config.toml").write_text(tomli_w.dumps({"superlink": written}), encoding="utf-8")
        return cls(home)

    @property
    def is_set_up(self) -> bool:
        """Whether anybody has said where the SuperLink is."""
        return (self.home / "config.toml").exists()

    def register(self, name: str, public_key: Path) -> int:
        """Let the holder of a key take part under this name."""
        answer = self._call("supernode", "register", str(public_key), CONNECTION, "--name", name)
        number = int(answer["node-id"])
        with (self.home / ROSTER).open("a", encoding="utf-8") as roster:
            roster.write(json.dumps({"number": number, "name": name}) + "\n")
        return number

    def nodes(self) -> list[Node]:
        """List the sites that are registered."""
        names, found = self._roster(), self._call("supernode", "list", CONNECTION)["nodes"]
        numbers = [int(node["node-id"]) for node in found]
        return [
            Node(number, names.get(number), node["status"])
            for number, node in zip(numbers, found, strict=True)
            if node["status"] != "unregistered"
        ]

    def submit(self, app: Path, settings: Path) -> int:
        """Start a run of an app, with settings from a TOML file, and return its number."""
        answer = self._call("run", str(app), CONNECTION, "--run-config", str(settings))
        return int(answer["run-id"])

    def run(self, number: int) -> Submitted:
        """Look at one run."""
        (found,) = self._call("list", CONNECTION, "--run-id", str(number))["runs"]
        return _submitted(found)

    def runs(self) -> list[Submitted]:
        """List all runs, the newest first."""
        return [_submitted(found) for found in self._call("list", CONNECTION)["runs"]]

    def log(self, number: int) -> str:
        """Read what the server of a run has written so far."""
        return self._flwr("log", str(number), CONNECTION, "--show").stdout

    def _roster(self) -> dict[int, str]:
        """Read who is who: Flower's list of nodes shows numbers and no names."""
        path = self.home / ROSTER
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return {entry["number"]: entry["name"] for entry in map(json.loads, lines)}

    def _call(self, *words: str) -> dict[str, Any]:
        what = f"flwr {' '.join(words[:2])}"
        return _understood(what, self._flwr(*words, "--format", "json"))

    def _flwr(self, *words: str) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                ["flwr", *words],
                env=environment(self.home),  # also says where `flwr` is
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise StateError(f"`flwr {words[0]}` gave no answer in {PATIENCE_S:.0f} s.") from None


def _understood(what: str, done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Read an answer; `flwr` may end with code 0 and a failure all the same."""
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        answer = {"success": False, "error-message": done.stderr or done.stdout}
    if done.returncode or not answer.get("success", False):
        lines = str(answer.get("error-message", "")).strip().splitlines() or ["it said nothing"]
        raise StateError(f"`{what}` failed: {lines[-1].strip().rstrip('.')}.")
    return answer


def _submitted(found: dict[str, Any]) -> Submitted:
    return Submitted(int(found["run-id"]), str(found["status"]))
