"""The manifest and the hashes that identify a federation."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from motet.data._chain import Chain
from motet.data._raw import SPLITS
from motet.errors import DataError

if TYPE_CHECKING:  # the federation asks for its own fingerprint, so it cannot be imported here
    from motet.data._federation import Federation

FORMAT = 1


def describe(federation: Federation) -> dict[str, Any]:
    """Make the manifest: the recipe of a federation, the resulting sizes, and its hashes."""
    totals = federation.rows.sizes.sum(axis=0).tolist()
    return {
        "format": FORMAT,
        "name": federation.name,
        **federation.recipe,
        "clients": len(federation.clients),
        "samples": dict(zip(SPLITS, totals, strict=True)),
        "targets_sha256": targets_hash(federation.y),
        "hash": federation.hash,
        **({} if federation.schema is None else {"schema": federation.schema.to_dict()}),
    }


def require_same(federation: Federation, manifest: Mapping[str, Any]) -> None:
    """Raise an error if the federation is not the one of the manifest."""
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
    """Hash the rows of each client and split and their targets, in order of client ids."""
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
    """Make bytes that do not depend on the width of the stored type or on the machine."""
    return targets.astype("<f8" if targets.dtype.kind == "f" else "<i8").tobytes()
