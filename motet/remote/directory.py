"""The server's run directory: where it is, so that it can go on, and what has happened so far."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from motet.backends.serial import Serial
from motet.errors import StateError
from motet.federation import Run
from motet.folder import CONFIG, DATA, ROUNDS
from motet.malformed import reading
from motet.records import json_text
from motet.remote.agreement import Agreement
from motet.remote.outline import Outline
from motet.remote.rehearsal import first_server
from motet.rundir import RunDirectory

SITES = "sites"  # in data.json: the names of all clients


class ServerDirectory(RunDirectory):
    """A run directory that also knows the clients, and who was heard in each round."""

    def note_clients(self, outline: Outline) -> None:
        """Write down who takes part."""
        self.replace(DATA, json_text(outline.manifest(), indent=2).encode())

    def _note_line(self, name: str, number: int, line: dict[str, Any]) -> None:
        if name == ROUNDS:
            line = {"lost": [], "rejected": {}, **line}
            silent = {*line["lost"], *line["rejected"]}
            line["replied"] = [client for client in line["cohort"] if client not in silent]
        super()._note_line(name, number, line)


def open_directory(path: Path, agreement: Agreement, outline: Outline) -> ServerDirectory:
    """Open the directory of this experiment, or make it."""
    if not (path / CONFIG).exists():
        return ServerDirectory.create(path, agreement.tables, outline)
    directory = ServerDirectory.open(path)
    if _manifest(path).get("hash") != agreement.agreed:
        directory.close()
        raise StateError(
            f"{path} holds another experiment, or another configuration of this one; choose "
            "another run directory."
        )
    return directory


def read_server(path: Path, agreement: Agreement) -> Any:
    """Read the server's state as it was last saved, when nobody is at work in the directory."""
    outline = agreement.outline(noted_clients(path))
    setting = agreement.setting(outline)
    run = Run(setting, Serial(setting), agreement.run.cohort, first_server(setting))
    with open_directory(path, agreement, outline) as directory:
        directory.restore(run)
    return run.server


def noted_clients(path: Path) -> tuple[str, ...]:
    """Read who took part when the directory was last used; nobody if it is new."""
    return tuple(_manifest(path).get(SITES, ())) if (path / DATA).exists() else ()


def _manifest(path: Path) -> dict[str, Any]:
    with reading(path / DATA, "manifest"):
        return dict(json.loads((path / DATA).read_text(encoding="utf-8")))
