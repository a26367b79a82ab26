"""The run directory of a deployment's server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from motet._core.corrupt_files import reading
from motet._engine.backends.serial import Serial
from motet._engine.federation import Run
from motet._runs.leftovers import CONFIG, DATA, ROUNDS
from motet._runs.run_dir import RunDirectory
from motet.config._values import to_plain
from motet.deploy._runtime.agreement import Agreement
from motet.deploy._runtime.data_schema import EmptyFederation
from motet.deploy._runtime.rehearsal import first_server
from motet.errors import StateError

SITES = "sites"  # in data.json: the names of all clients


class ServerDirectory(RunDirectory):
    """A run directory that also knows the clients, and which of them replied in each round."""

    def note_clients(self, federation: EmptyFederation) -> None:
        """Write down who takes part."""
        self.write_manifest(federation)

    def _note_line(self, name: str, number: int, line: dict[str, Any]) -> None:
        if name == ROUNDS:
            line = {"lost": [], "rejected": {}, **line}
            silent = {*line["lost"], *line["rejected"]}
            line["replied"] = [client for client in line["cohort"] if client not in silent]
        super()._note_line(name, number, line)


def open_directory(
    path: Path, agreement: Agreement, federation: EmptyFederation
) -> ServerDirectory:
    """Open the directory of this experiment, or make it."""
    directory = ServerDirectory.claim(path, overwrite=True)  # so far nothing is overwritten
    with directory.giving_up():
        if not (path / CONFIG).exists():
            directory.start(_complete(agreement), federation)
        elif _manifest(path).get("hash") != agreement.agreed:
            raise StateError(
                f"{path} holds another experiment, or another configuration of this one; choose "
                "another run directory."
            )
    return directory


def _complete(agreement: Agreement) -> dict[str, Any]:
    """Write defaults out, as a run does: whoever reads the directory need not know them."""
    run = {k: v for k, v in to_plain(vars(agreement.run), "run").items() if v is not None}
    return {**agreement.tables, "run": run}


def read_server(path: Path, agreement: Agreement) -> Any:
    r"""Read the server's state as it was last saved, while no process works in the directory.

    Args:
        path: The run directory of the server.
        agreement: The experiment.

    Returns:
        The server's state.

    Raises:
        StateError: Nothing was saved, or a process works in the directory.

    Example:
        >>> from pathlib import Path
        >>> from motet.deploy import Agreement
        >>> config = '[method]\nname = "fedper"\n[data]\nshape = [4]\nclasses = 2\n'
        >>> read_server(Path("run"), Agreement.from_text("heart", config))
        Traceback (most recent call last):
            ...
        motet.errors.StateError: run is not the run directory of a server: it has no data.json.
    """
    clients = noted_clients(path)
    if not clients:
        raise StateError(f"{path} is not the run directory of a server: it has no {DATA}.")
    federation = agreement.empty_federation(clients)
    setting = agreement.setting(federation)
    run = Run(setting, Serial(setting), agreement.run.cohort, first_server(setting))
    with open_directory(path, agreement, federation) as directory:
        directory.restore(run)
    return run.server


def noted_clients(path: Path) -> tuple[str, ...]:
    """Read which clients took part when the directory was last used; () if it is new."""
    return tuple(_manifest(path).get(SITES, ())) if (path / DATA).exists() else ()


def _manifest(path: Path) -> dict[str, Any]:
    with reading(path / DATA, "manifest"):
        return dict(json.loads((path / DATA).read_text(encoding="utf-8")))
