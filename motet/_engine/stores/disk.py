"""Private states on disk, for more clients than memory holds.

Only clients that have trained are in the file, and only a cohort's states are ever in memory. Every
state is checked when it is read: one that is damaged is noted by client and counts as lost, the
others stay. Which clients there should be is sealed by a fingerprint, so that none can vanish
unnoticed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from motet._core import tree
from motet._engine.stores.database import Database, Row
from motet._engine.stores.state_format import Bytes, Layout, checksum, key_of
from motet.errors import StateError, WireError

TABLES = (
    # Ids as bytes: they may hold anything a string can. Apart from the states, so that a look at
    # who is there does not read what they keep.
    """CREATE TABLE IF NOT EXISTS clients (client BLOB PRIMARY KEY, slot INTEGER NOT NULL,
       version INTEGER NOT NULL, checksum INTEGER NOT NULL) WITHOUT ROWID""",
    "CREATE TABLE IF NOT EXISTS states (slot INTEGER PRIMARY KEY, state BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS seal (number INTEGER PRIMARY KEY, text TEXT NOT NULL)",
)


@dataclass
class Seal:
    """What the table of clients holds after a commit.

    Attributes:
        commits: How often it was committed: the version of what is put next.
        clients: How many there are.
        fingerprint: Over all ids with the version of their state, in any order.
    """

    commits: int = 0
    clients: int = 0
    fingerprint: int = 0

    def add(self, key: bytes, version: int, *, sign: int) -> None:
        """Count a client in (+1) or out (-1)."""
        self.clients += sign
        # Exclusive or: adding what is there takes it out.
        self.fingerprint ^= _mark(key, version)


class DiskStore:
    """Private states in one SQLite file, which other processes may read meanwhile.

    Args:
        path: The file; it is made at the first use.
        read_only: Look at the last commit of a store that another process writes.
        tables: SQL statements that make further tables of the same file.

    Attributes:
        damaged: Why the state of a client could not be read, by client; it starts afresh.

    Example:
        >>> import tempfile
        >>> import torch
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store = DiskStore(f"{folder}/clients.sqlite")
        ...     store.expect(lambda: {"head": torch.zeros(2)})
        ...     store.put("basel", {"head": torch.ones(2)})
        ...     store.commit()
        ...     list(store), store.get("basel")["head"]
        ...     store.close()
        (['basel'], tensor([1., 1.]))
    """

    def __init__(
        self, path: str | Path, *, tables: Iterable[str] = (), read_only: bool = False
    ) -> None:
        self.database = Database(Path(path), (*TABLES, *tables), read_only=read_only)
        self.damaged: dict[str, str] = {}
        self._template: Callable[[], Any] | None = None
        self._known_layout: Layout | None = None
        self._known_seal: Seal | None = None
        self._last_seal: Seal | None = None  # in the file, when it was last looked at
        self.database.on_begin = self._refuse_others

    def expect(self, template: Callable[[], Any]) -> None:
        """Set the structure of the states to come.

        Args:
            template: Makes a state with the same structure.
        """
        self._template, self._known_layout = template, None

    def __contains__(self, client: str) -> bool:
        return self._read(client) is not None

    def __iter__(self) -> Iterator[str]:
        # Bytes of UTF-8 sort as the strings do.
        keys = self.database.rows((bytes,), "SELECT client FROM clients ORDER BY client")
        return iter([_client(key) for (key,) in keys])

    def __len__(self) -> int:
        if self._is_new():
            return 0
        (count,) = self.database.rows((int,), "SELECT count(*) FROM clients")[0]
        return int(count)

    def get(self, client: str) -> Any:
        """Read what a client keeps.

        Args:
            client: Id of the client.

        Returns:
            Its state.
        """
        state = self._read(client)
        if state is None:
            raise KeyError(client)
        return self._layout().read_one(state)

    def put(self, client: str, state: Any) -> None:
        """Write what a client keeps.

        Args:
            client: Id of the client.
            state: What the client keeps from now on.
        """
        self.put_rows([client], tree.tree_map(lambda leaf: leaf.unsqueeze(0), state))

    def rows(self, clients: Sequence[str], fresh: Callable[[str], Any]) -> Any:
        """Read what several clients keep, stacked.

        Args:
            clients: Ids of the clients.
            fresh: Makes the state of a client that has none yet.

        Returns:
            Tensors with one row per client.
        """
        states = [self._read(client) for client in clients]
        if all(state is None for state in states):
            return tree.stack([fresh(client) for client in clients])
        return self._layout().read(states, lambda row: fresh(clients[row]))

    def put_rows(self, clients: Sequence[str], stacked: Any) -> None:
        """Write the rows of a stack.

        Args:
            clients: Ids of the clients.
            stacked: Tensors with one row per client.
        """
        written = self._layout(stacked).write(stacked, len(clients))
        for client, state in zip(clients, written, strict=True):
            self._write(client, state)

    def commit(self) -> None:
        """Seal what was put since the last commit, and put it on disk in one step."""
        with self.database.lock:
            seal = self._seal()
            seal.commits += 1
            self.database.write("REPLACE INTO seal VALUES (0, ?)", json.dumps(asdict(seal)))
            self.database.commit()
            self._last_seal = replace(seal)

    def close(self) -> None:
        """Close the file, and forget what was not committed."""
        self.database.close()
        self._known_seal = self._last_seal = None

    @property
    def version(self) -> int:
        """How many commits the file has seen."""
        return self._seal().commits

    def verify(self) -> None:
        """Refuse a file in which clients have vanished, or whose parts are of different ages."""
        found = Seal(commits=self._seal().commits)
        query = "SELECT client, version FROM clients"
        for key, version in self.database.each((bytes, int), query):
            found.add(key, version, sign=1)
        if found != self._seal():
            raise WireError(
                f"{self.database.path} is damaged: it should list {self._seal().clients} clients "
                f"with fingerprint {self._seal().fingerprint:016x}, and lists {found.clients} with "
                f"{found.fingerprint:016x}."
            )

    def _layout(self, stacked: Any = None) -> Layout:
        if self._known_layout is None:
            if self._template is not None:
                like = self._template()
            else:
                assert stacked is not None, "a store must `expect` a template before it is read"
                like = tree.row(stacked, 0)
            self._known_layout = Layout.of(like)
        return self._known_layout

    def _seal(self) -> Seal:
        if self._known_seal is None or self.database.read_only:
            self._known_seal = self._read_seal()
            self._last_seal = replace(self._known_seal)
        return self._known_seal

    def _is_new(self) -> bool:
        """Tell whether there is no file yet; no other process may make it after that."""
        if not self.database.is_new:
            return False
        if self._known_seal is None:
            self._known_seal, self._last_seal = Seal(), Seal()
        return True

    def _refuse_others(self) -> None:
        """Refuse to write over what another process has committed since the last read."""
        if self._last_seal is not None and self._last_seal != self._read_seal():
            raise StateError(
                f"another process has written {self.database.path} meanwhile; give each run a "
                "file of its own."
            )

    def _read_seal(self) -> Seal:
        found = self.database.rows((str,), "SELECT text FROM seal")
        try:
            return Seal(**json.loads(found[0][0])) if found else Seal()
        except (TypeError, ValueError) as reason:
            raise WireError(f"{self.database.path} is damaged: {reason}.") from reason

    def _write(self, client: str, state: Bytes) -> None:
        key = key_of(client)
        with self.database.lock:
            seal, slot = self._seal(), None
            version = seal.commits + 1
            found = self._find(key)
            if found is not None:
                slot, old, _ = found
                seal.add(key, old, sign=-1)
            slot = self.database.write("REPLACE INTO states VALUES (?, ?)", slot, state.data)
            row = (key, slot, version, checksum(client, version, state.data))
            self.database.write("REPLACE INTO clients VALUES (?, ?, ?, ?)", *row)
            seal.add(key, version, sign=1)

    def _read(self, client: str) -> bytes | None:
        """Return the bytes of a state; None for a client that is not there or lost its state."""
        key = key_of(client)
        with self.database.lock:
            found = self._find(key)
            if found is None:
                return None
            slot, version, expected = found
            try:
                state = self._state(slot)
                if checksum(client, version, state) == expected:
                    return state
                why = f"{self.database.path}: its checksum is wrong"
            except WireError as reason:
                why = str(reason)
            self._lose(client, version, why)
            return None

    def _find(self, key: bytes) -> Row | None:
        if self._is_new():
            return None
        query = "SELECT slot, version, checksum FROM clients WHERE client = ?"
        found = self.database.rows((int, int, int), query, key)
        return found[0] if found else None

    def _state(self, slot: int) -> bytes:
        found = self.database.rows((bytes,), "SELECT state FROM states WHERE slot = ?", slot)
        if not found:
            raise WireError(f"{self.database.path}: it is missing")
        state: bytes = found[0][0]
        return state

    def _lose(self, client: str, version: int, why: str) -> None:
        self.damaged[client] = why
        if not self.database.read_only:
            self.database.write("DELETE FROM clients WHERE client = ?", key_of(client))
            self._seal().add(key_of(client), version, sign=-1)


def _client(key: bytes) -> str:
    return key.decode("utf-8", "surrogatepass")


def _mark(key: bytes, version: int) -> int:
    digest = blake2b(key, digest_size=8, key=str(version).encode()).digest()
    return int.from_bytes(digest, "big")
