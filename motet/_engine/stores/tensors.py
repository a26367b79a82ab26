"""Single tensors in a SQLite file: written in parts, known by a hash."""

from __future__ import annotations

from hashlib import blake2b

from torch import Tensor

from motet._core import tree, wire
from motet._engine.stores.database import Database
from motet.errors import WireError

PART = 2**28  # SQLite keeps less than a gigabyte in one value
TENSORS = """CREATE TABLE IF NOT EXISTS tensors (name TEXT NOT NULL, part INTEGER NOT NULL,
       bytes BLOB NOT NULL, PRIMARY KEY (name, part))"""


def digest_of(written: bytes) -> str:
    """Hash a tensor as it was written."""
    return blake2b(written, digest_size=32).hexdigest()


def write_tensor(database: Database, name: str, written: bytes) -> None:
    """Replace the tensor of this name."""
    database.write("DELETE FROM tensors WHERE name = ?", name)
    for part, start in enumerate(range(0, len(written), PART)):
        row = (name, part, memoryview(written)[start : start + PART])
        database.write("INSERT INTO tensors VALUES (?, ?, ?)", *row)


def read_tensor(database: Database, name: str, digest: str) -> Tensor:
    """Read a tensor; refuse one that is not what was saved."""
    query = "SELECT bytes FROM tensors WHERE name = ? ORDER BY part"
    written = b"".join(part for (part,) in database.rows((bytes,), query, name))
    if digest_of(written) != digest:
        raise WireError(
            f'{database.path} is damaged: the tensor "{tree.readable(name)}" is not what was saved.'
        )
    return next(iter(wire.read_tensors(written).values()))
