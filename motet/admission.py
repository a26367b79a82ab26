"""Which uploads may enter the combination: a single NaN would poison everybody's model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from motet import tree
from motet.reduce import Reduce


class Received(NamedTuple):
    """What has arrived of some clients' uploads, combined."""

    partial: Any  # of the method's reduction; None if nothing usable came
    replied: tuple[str, ...]  # whose uploads are in it
    rejected: dict[str, str]  # the others, and why


def receive(reduce: Reduce, clients: Sequence[str], uploads: Any, weights: Tensor) -> Received:
    """Combine the uploads of a stack of clients, less those that hold a NaN or an infinity."""
    reasons = _faults(clients, uploads)
    if not reasons:
        return Received(reduce.lift(clients, uploads, weights), tuple(clients), {})
    good = [i for i, client in enumerate(clients) if client not in reasons]
    if not good:
        return Received(None, (), reasons)
    kept, index = tuple(clients[i] for i in good), torch.tensor(good)
    usable = tree.tree_map(lambda leaf: leaf[index], uploads)
    return Received(reduce.lift(kept, usable, weights[index]), kept, reasons)


def _faults(clients: Sequence[str], uploads: Any) -> dict[str, str]:
    named = [(name, leaf) for name, leaf in tree.flatten(uploads) if leaf.is_floating_point()]
    # One sum per tensor tells that all is well; only then is there no need to look row by row.
    if all(leaf.sum().isfinite() for _, leaf in named):
        return {}
    return {
        client: f"{tree.readable(name)} holds a NaN or an infinity"
        for name, leaf in reversed(named)  # so that the first of several is the one reported
        for client, row in zip(clients, leaf, strict=True)
        if not row.isfinite().all()
    }
