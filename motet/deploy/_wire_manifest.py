"""Every tensor that a site sends and receives, for the people who must approve it."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from motet._core import tree
from motet._core.half_precision import FULL, Precision, packed
from motet.deploy._runtime.agreement import Agreement
from motet.deploy._runtime.rehearsal import Rehearsal


class WireTensor(NamedTuple):
    """One tensor of a message."""

    name: str
    shape: tuple[int, ...]
    kind: str
    size: int  # bytes


class WireManifest(NamedTuple):
    """The messages of one round, from the view of one site."""

    down: tuple[WireTensor, ...]
    up: tuple[WireTensor, ...]


def wire_manifest(agreement: Agreement, sites: tuple[str, ...]) -> WireManifest:
    """Rehearse a round without data, and list what is sent."""
    rehearsal = Rehearsal(agreement.setting(agreement.empty_federation(sites)))
    *_, down = rehearsal.downs(sites[0], serving=False)
    precision = agreement.run.uploads
    up = _tensors(rehearsal.up(), precision)
    return WireManifest(_tensors(down), up)


def _tensors(message: Any, precision: Precision = FULL) -> tuple[WireTensor, ...]:
    sizes = {path: leaf.nbytes for path, leaf in tree.flatten(packed(message, precision))}
    return tuple(
        WireTensor(
            tree.readable(path),
            tuple(leaf.shape),
            precision if leaf.dtype == torch.float32 else str(leaf.dtype).removeprefix("torch."),
            sizes[path],
        )
        for path, leaf in tree.flatten(message)
    )
