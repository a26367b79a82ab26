"""The state of a run on disk: what the server holds and what clients keep, as safetensors.

    checkpoint/meta.json                    which round, which files, their hashes
    checkpoint/server-000010.safetensors    the server's state
    checkpoint/clients-000010.safetensors   private states, "client/name"

`meta.json` is replaced last and in one step, so it always points to files that are complete.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from motet import wire
from motet.atomic import write_atomically
from motet.errors import StateError, WireError
from motet.federation import Run

FORMAT = 1
META = "meta.json"
KEYS = ("format", "finished", "method", "data", "clients", "files")
PATTERNS = ("server-*.safetensors", "clients-*.safetensors", ".*.unfinished")


def save(run: Run, folder: Path) -> None:
    """Save a run between two rounds."""
    folder.mkdir(parents=True, exist_ok=True)
    store = run.setting.store
    files = {
        f"server-{run.finished:06d}.safetensors": wire.to_bytes(run.server),
        f"clients-{run.finished:06d}.safetensors": wire.to_bytes({c: store.get(c) for c in store}),
    }
    for name, contents in files.items():
        write_atomically(folder / name, contents)
    meta = {
        "format": FORMAT,
        "finished": run.finished,
        "method": run.setting.method.name,
        "data": run.setting.federation.hash,
        # Named here as well: a client whose state is empty has no tensor that would name it, but
        # it has trained.
        "clients": list(store),
        "files": {name: hashlib.sha256(contents).hexdigest() for name, contents in files.items()},
    }
    write_atomically(folder / META, json.dumps(meta, indent=2).encode())
    _remove_superseded(folder, keep=set(files))


def restore(run: Run, folder: Path) -> None:
    """Put a saved state into a run that has just been started with the same settings."""
    meta = read_meta(folder)
    setting = run.setting
    came, expected = (meta["method"], meta["data"]), (setting.method.name, setting.federation.hash)
    if came != expected:
        raise StateError(
            f"the checkpoint in {folder} is of {came[0]} on data {came[1][:12]}; this run is "
            f"{expected[0]} on data {expected[1][:12]}."
        )
    server, clients = (_read(folder, name, digest) for name, digest in meta["files"].items())
    run.server = wire.from_bytes(run.server, server)
    template = {client: setting.fresh_client(client) for client in meta["clients"]}
    for client, kept in wire.from_bytes(template, clients).items():
        setting.store.put(client, kept)
    run.finished = meta["finished"]


def read_meta(folder: Path) -> dict[str, Any]:
    """Read which round a checkpoint is of, and what belongs to it."""
    path = folder / META
    try:
        meta = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StateError(f"there is no checkpoint in {folder}.") from None
    except ValueError as reason:
        raise StateError(f"{path} is not JSON: {reason}.") from None
    if not isinstance(meta, dict) or not meta.keys() >= set(KEYS):
        raise StateError(f"{path} is no meta data of a checkpoint: it needs {', '.join(KEYS)}.")
    if meta["format"] != FORMAT:
        raise StateError(
            f"this version reads checkpoints of format {FORMAT}; {meta['format']!r} came."
        )
    return meta


def exists(folder: Path) -> bool:
    """Tell whether a complete checkpoint is there."""
    return (folder / META).is_file()


def remove(folder: Path) -> None:
    """Remove a checkpoint, and only what belongs to it."""
    (folder / META).unlink(missing_ok=True)
    _remove_superseded(folder, keep=set())
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _read(folder: Path, name: str, digest: str) -> bytes:
    path = folder / name
    try:
        contents = path.read_bytes()
    except FileNotFoundError:
        raise StateError(f"the checkpoint in {folder} lacks {name}.") from None
    if hashlib.sha256(contents).hexdigest() != digest:
        raise WireError(f"{path} is damaged: its SHA-256 is not the one in {META}.")
    return contents


def _remove_superseded(folder: Path, *, keep: set[str]) -> None:
    for pattern in PATTERNS:
        for path in folder.glob(pattern):
            if path.name not in keep:
                path.unlink()
