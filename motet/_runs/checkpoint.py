"""The state of a run on disk, in one SQLite file: `checkpoint/state.sqlite`.

    clients, states, seal   what clients keep, see `motet._engine.stores.disk`
    tensors                 the server's state and the run's extras, a safetensors file per tensor
    records                 what was written down about each round
    checkpoint              which round all of it is of, and the hashes of the tensors

A save is one transaction, so a crash at any instant leaves the last save, whole. Only what has
changed is written. Everything is checked when it is read.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from motet._core import tree, wire
from motet._engine.federation import Run
from motet._engine.stores.disk import DiskStore
from motet._engine.stores.memory import CopiedStore
from motet._engine.stores.tensors import TENSORS, digest_of, read_tensor, write_tensor
from motet.errors import StateError, WireError

FORMAT = 2
STATE = "state.sqlite"
OLD = "meta.json"  # of format 1
PATTERNS = (f"{STATE}*", OLD, "*-??????.safetensors", ".*.unfinished")
AT_ONCE = 64  # states copied in one go: from another process they come in one message
TABLES = (
    TENSORS,
    """CREATE TABLE IF NOT EXISTS records (kind TEXT NOT NULL, number INTEGER NOT NULL,
       text TEXT NOT NULL, checksum INTEGER NOT NULL, PRIMARY KEY (kind, number))""",
    """CREATE TABLE IF NOT EXISTS checkpoint (number INTEGER PRIMARY KEY, text TEXT NOT NULL,
       checksum INTEGER NOT NULL)""",
)


class Checkpoint:
    """What is saved about one run, and the transaction that the next save will end."""

    def __init__(self, run: Run, folder: Path, history: str = "") -> None:
        store = run.setting.store
        self.run = run
        self.history = history  # the id of the run
        self.saved = 0  # the round that is on disk
        self.states = store if isinstance(store, DiskStore) else disk_store(folder)
        self._digests: dict[str, str] = {}  # of the tensors on disk
        self._told = 0

    def require_new(self) -> None:
        """Refuse to begin a run with what another one has left."""
        if not self.states.database.is_new:
            raise StateError(
                f"{self._path} appeared while the run began; let the process that wrote it "
                "finish, or choose another directory with --out."
            )

    def newly_damaged(self) -> dict[str, str]:
        """Return clients that lost their state since the last call, and why."""
        new = list(self.states.damaged.items())[self._told :]
        self._told += len(new)
        return dict(new)

    def note(self, kind: str, number: int, text: str) -> None:
        """Write down something about a round; it becomes part of the next save."""
        row = (kind, number, text, _checksum(kind, number, text))
        self.states.database.write("REPLACE INTO records VALUES (?, ?, ?, ?)", *row)

    def notes(self, kind: str) -> Iterator[tuple[int, str]]:
        """Read what was written down, in the order of the numbers."""
        query = "SELECT number, text, checksum FROM records WHERE kind = ? ORDER BY number"
        for number, text, checksum in self.states.database.each((int, str, int), query, kind):
            if _checksum(kind, number, text) != checksum:
                raise self._damage(f"{kind} {number} is not what was saved")
            yield number, text

    def save(self) -> None:
        """Save the run as it is between two rounds."""
        run, store = self.run, self.run.setting.store
        if isinstance(store, CopiedStore):
            self._copy(store)
        digests = {name: self._write(name, leaf) for name, leaf in _named(run)}
        for name in self._digests.keys() - digests.keys():
            self.states.database.write("DELETE FROM tensors WHERE name = ?", name)
        text = json.dumps(self._description(digests))
        row = (0, text, _checksum("checkpoint", 0, text))
        self.states.database.write("REPLACE INTO checkpoint VALUES (?, ?, ?)", *row)
        self.states.commit()
        if store is not self.states:
            store.commit()
        self._digests, self.saved = digests, run.rounds_done

    def restore(self) -> None:
        """Put what was saved, if anything was, into a run just started with the same settings."""
        saved = _read(self.states)
        if saved is None:
            return
        self._check_is_ours(saved)
        self.states.verify()
        if saved["version"] != self.states.version or saved["records"] != self._count_records():
            raise self._damage("its parts are of different ages")
        database = self.states.database
        named = {name: read_tensor(database, name, d) for name, d in saved["tensors"].items()}
        self.run.server = wire.from_tensors(self.run.server, tree.slot("server", named))
        self.run.extras = _nested(tree.slot("extras", named))
        if isinstance(self.run.setting.store, CopiedStore):
            self._fill(self.run.setting.store)
        self.run.rounds_done, self._digests = saved["finished"], saved["tensors"]
        self.saved = saved["finished"]

    def close(self) -> None:
        """Close the file; what was not saved is forgotten."""
        self.states.close()

    def _description(self, digests: Mapping[str, str]) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "run": self.history,
            "finished": self.run.rounds_done,
            "method": self.run.setting.method.name,
            "data": self.run.setting.federation.hash,
            "version": self.states.version + 1,
            "records": self._count_records(),
            "tensors": digests,
        }

    def _check_is_ours(self, saved: Mapping[str, Any]) -> None:
        setting = self.run.setting
        found = (saved["method"], saved["data"])
        expected = (setting.method.name, setting.federation.hash)
        if found != expected:
            raise StateError(
                f"the checkpoint in {self._path.parent} is of {found[0]} on data {found[1][:12]}; "
                f"this run is {expected[0]} on data {expected[1][:12]}."
            )
        history = saved.get("run", "")  # version 0.1 did not write it
        if history != self.history:
            raise StateError(
                f"the checkpoint in {self._path.parent} belongs to run {history or 'unknown'}; the "
                f"directory holds run {self.history or 'unknown'}. Put the right checkpoint back, "
                "or begin the run again with --overwrite."
            )

    def _copy(self, store: CopiedStore) -> None:
        changed, fresh = sorted(store.changed), self.run.setting.fresh_client
        for start in range(0, len(changed), AT_ONCE):
            clients = changed[start : start + AT_ONCE]
            self.states.put_rows(clients, store.rows(clients, fresh))

    def _fill(self, store: CopiedStore) -> None:
        setting = self.run.setting
        self.states.expect(lambda: setting.fresh_client(setting.federation.clients[0]))
        for client in self.states:
            if client in self.states:  # not if its state is damaged
                store.put(client, self.states.get(client))
        store.commit()

    def _write(self, name: str, leaf: Tensor) -> str:
        """Write a tensor unless it is there already; return its hash."""
        written = wire.to_bytes({name: leaf})
        digest = digest_of(written)
        if digest != self._digests.get(name):
            write_tensor(self.states.database, name, written)
        return digest

    def _count_records(self) -> dict[str, int]:
        query = "SELECT kind, count(*) FROM records GROUP BY kind ORDER BY kind"
        return dict(self.states.database.rows((str, int), query))

    @property
    def _path(self) -> Path:
        return self.states.database.path

    def _damage(self, what: str) -> WireError:
        return WireError(f"{self._path} is damaged: {what}.")


def disk_store(folder: Path, *, read_only: bool = False) -> DiskStore:
    """Open the file of a checkpoint as a store: states and checkpoints share its transactions."""
    return DiskStore(folder / STATE, tables=TABLES, read_only=read_only)


def read_meta(folder: Path) -> dict[str, Any]:
    """Read which round a checkpoint is of; another process may be at work on it."""
    store = disk_store(folder, read_only=True)
    try:
        saved = None if store.database.is_new else _read(store)
    finally:
        store.close()
    if saved is None:
        raise StateError(f"there is no checkpoint in {folder}.")
    return saved


def remove(folder: Path) -> None:
    """Remove a checkpoint, and only what belongs to it."""
    for pattern in PATTERNS:
        for path in folder.glob(pattern):
            path.unlink()
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _read(store: DiskStore) -> dict[str, Any] | None:
    """Read the description of what was saved last, if anything was."""
    path = store.database.path
    if (path.parent / OLD).exists():
        raise StateError(
            f"the checkpoint in {path.parent} has format 1, and this version reads {FORMAT}; "
            "finish the run with the version that began it, or begin it again with --overwrite."
        )
    query = "SELECT text, checksum FROM checkpoint"
    for text, checksum in store.database.rows((str, int), query):
        if _checksum("checkpoint", 0, text) != checksum:
            raise WireError(f"{path} is damaged: its description is not what was saved.")
        saved: dict[str, Any] = json.loads(text)
        if saved["format"] != FORMAT:
            raise StateError(
                f"the checkpoint in {path.parent} has format {saved['format']}, and this version "
                f"reads {FORMAT}; use a version that reads it."
            )
        return saved
    return None


def _named(run: Run) -> Iterator[tuple[str, Tensor]]:
    for root, value in (("server", run.server), ("extras", run.extras)):
        for path, leaf in tree.flatten(value):
            yield f"{root}/{path}", leaf


def _nested(named: Mapping[str, Tensor]) -> dict[str, tree.State]:
    owners: dict[str, tree.State] = {}
    for path, leaf in named.items():
        owner, name = map(tree.readable, path.split("/"))
        owners.setdefault(owner, {})[name] = leaf
    return owners


def _checksum(kind: str, number: int, text: str) -> int:
    return zlib.crc32(f"{kind} {number} {text}".encode("utf-8", "surrogatepass"))
