"""What a run has left behind, as bytes to compare."""

import sqlite3
from contextlib import closing

SERVER = "SELECT name, part, bytes FROM tensors ORDER BY name, part"
CLIENTS = "SELECT client, state FROM clients JOIN states USING (slot) ORDER BY client"
FILES = ("config.toml", "data.json", "rounds.jsonl", "clients.parquet")


def saved_state(directory):
    """Read the server's state and what clients keep."""
    with closing(sqlite3.connect(directory / "checkpoint" / "state.sqlite")) as database:
        server, clients = (database.execute(query).fetchall() for query in (SERVER, CLIENTS))
    return {"server": server, "clients": clients}


def assert_same_run(a, b):
    """Compare everything but the time it took, byte for byte."""
    for name in FILES:
        assert (a / name).read_bytes() == (b / name).read_bytes(), name
    assert saved_state(a) == saved_state(b)
