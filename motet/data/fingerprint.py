"""What identifies a federation: its manifest and its hashes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from motet.data.chain import Chain
from motet.data.raw import SPLITS
from motet.errors import DataError

if TYPE_CHECKING:  # the federation asks for its own fingerprint, so it cannot be imported here
    from motet.data.federation import Federation

FORMAT = 1


def describe(federation: Federation) -> dict[str, Any]:
    """Write down the recipe of a federation, what came out of it, and the hashes that prove it."""
    totals = federation.rows.sizes.sum(axis=0).tolist()
    return {
        "format": FORMAT,
        "name": federation.name,
        **federation.recipe,
        "clients": len(federation.clients),
        "samples": dict(zip(SPLITS, totals, strict=True)),
        "targets_sha256": targets_hash(federation.y),
        "hash": federation.hash,
    }


def require_same(federation: Federation, manifest: Mapping[str, Any]) -> None:
    """Refuse a federation that is not the one of the manifest."""
    if manifest.get("hash") == federation.hash:
        return
    same_targets = manifest.get("targets_sha256") == targets_hash(federation.y)
    reason = (
        "its clients or splits differ; use the same seed, partition and split"
        if same_targets
        else "its targets differ; use the same files"
    )
    raise DataError(
        f'"{federation.name}" is not the federation of the manifest: {reason}. '
        f"Expected hash {str(manifest.get('hash'))[:12]}, found {federation.hash[:12]}."
    )


def assignment_hash(federation: Federation) -> str:
    """Hash who has which rows in which split and the targets there, in order of client ids."""
    digest = hashlib.sha256()
    for client, position in sorted(
        zip(federation.clients, range(len(federation.clients)), strict=True)
    ):
        for number, split in enumerate(SPLITS):
            rows = federation.rows.rows(position, number)
            digest.update(f"{client}\0{split}\0{len(rows)}\0".encode())
            digest.update(rows.astype("<i8").tobytes())
            digest.update(_plain_bytes(federation.y.take(rows)))
    return digest.hexdigest()


def targets_hash(y: Chain) -> str:
    """Hash all targets, used or not."""
    digest = hashlib.sha256()
    for _, chunk in y.chunks():
        digest.update(_plain_bytes(chunk))
    return digest.hexdigest()


def _plain_bytes(targets: NDArray[Any]) -> bytes:
    """Make bytes that depend neither on how wide the stored type is nor on the machine."""
    return targets.astype("<f8" if targets.dtype.kind == "f" else "<i8").tobytes()
