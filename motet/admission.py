"""Which uploads may enter the combination: a single NaN would poison everybody's model."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import torch

from motet import tree
from motet.method import RoundInfo
from motet.reduce import Total
from motet.setting import Setting, down_for


class Received(NamedTuple):
    """What has arrived of some clients' uploads, combined."""

    partial: Any  # of the method's reduction; None if nothing usable came
    replied: tuple[str, ...]  # whose uploads are in it
    lost: tuple[str, ...]  # whose replies never came
    rejected: dict[str, str]  # whose uploads were refused, and why


def receive(
    setting: Setting, info: RoundInfo, down: Any, clients: Sequence[str], uploads: Any
) -> Received:
    """Combine the uploads of a stack of clients, less what is lost and what is not a number."""
    faults, key = setting.faults, setting.key
    lost = tuple(filter(faults.losing(info.number, key), clients)) if faults.lost else ()
    if faults.corrupt:
        uploads = _corrupted(setting, down, clients, uploads)
    replied, uploads = _without(lost, clients, uploads)
    partial = _lifted(setting, replied, uploads)
    if _is_finite(partial, uploads):
        return Received(partial, replied, lost, {})
    rejected = _reasons(replied, uploads)
    replied, uploads = _without(rejected, replied, uploads)
    return Received(_lifted(setting, replied, uploads), replied, lost, rejected)


def _without(
    unwanted: Collection[str], clients: Sequence[str], uploads: Any
) -> tuple[tuple[str, ...], Any]:
    kept = [i for i, client in enumerate(clients) if client not in unwanted]
    if len(kept) < len(clients):
        uploads = tree.tree_map(lambda leaf: leaf[kept], uploads)
    return tuple(clients[i] for i in kept), uploads


def _lifted(setting: Setting, clients: Sequence[str], uploads: Any) -> Any:
    if not clients:
        return None
    weights = torch.tensor([setting.weight(client) for client in clients])
    return setting.method.reduce.lift(clients, uploads, weights)


def _is_finite(partial: Any, uploads: Any) -> bool:
    # One bad number spoils the total it enters, so a total is all there is to look at.
    looked_at = partial.value if isinstance(partial, Total) else uploads
    return tree.is_finite(looked_at)


def _corrupted(setting: Setting, down: Any, clients: Sequence[str], uploads: Any) -> Any:
    corrupt = setting.faults.corrupting(setting.key)
    rows = [tree.row(uploads, i) for i in range(len(clients))]
    return tree.stack(
        [
            setting.faults.spoiled(row, down_for(down, client), setting.initial)
            if corrupt(client)
            else row
            for client, row in zip(clients, rows, strict=True)
        ]
    )


def _reasons(clients: Sequence[str], uploads: Any) -> dict[str, str]:
    named = [(name, leaf) for name, leaf in tree.flatten(uploads) if leaf.is_floating_point()]
    return {
        client: f"{tree.readable(name)} holds a NaN or an infinity"
        for name, leaf in reversed(named)  # so that the first of several is the one reported
        for client, row in zip(clients, leaf, strict=True)
        if not row.isfinite().all()
    }
