"""What a run has left behind, as bytes to compare."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

SERVER = "SELECT name, part, bytes FROM tensors ORDER BY name, part"
CLIENTS = "SELECT client, state FROM clients JOIN states USING (slot) ORDER BY client"
FILES = ("config.toml", "data.json", "rounds.jsonl", "clients.parquet")


def saved_state(directory: Path) -> dict[str, list[Any]]:
    """Read the server's state and what clients keep."""
    with closing(sqlite3.connect(directory / "checkpoint" / "state.sqlite")) as database:
        server, clients = (database.execute(query).fetchall() for query in (SERVER, CLIENTS))
    return {"server": server, "clients": clients}


def assert_same_run(a: Path, b: Path) -> None:
    """Compare everything but the time it took, byte for byte."""
    for name in FILES:
        assert (a / name).read_bytes() == (b / name).read_bytes(), name
    assert saved_state(a) == saved_state(b)
