"""The server's weights in the checkpoint of a run."""

from __future__ import annotations

import json
from pathlib import Path

from motet._core import tree
from motet._core.tree import State
from motet._engine.stores.database import Database
from motet._engine.stores.tensors import read_tensor
from motet.errors import StateError

SERVER = "server/"


def server_weights(path: Path) -> State:
    """Read the server's tensors of a checkpoint, by their names in the network."""
    database = Database(path, (), read_only=True)
    try:
        return {
            tree.readable(name.removeprefix(SERVER)): read_tensor(database, name, digest)
            for name, digest in _saved_tensors(database).items()
            if name.startswith(SERVER)
        }
    finally:
        database.close()


def _saved_tensors(database: Database) -> dict[str, str]:
    """Read the hashes of the tensors that were saved last."""
    saved = database.rows((str,), "SELECT text FROM checkpoint")
    if not saved:
        raise StateError(
            f"nothing has been saved in {database.path} yet; let the run finish a round."
        )
    try:
        digests: dict[str, str] = json.loads(saved[0][0])["tensors"]
    except (ValueError, KeyError, TypeError):
        raise StateError(f"{database.path} is damaged: its description cannot be read.") from None
    return digests
