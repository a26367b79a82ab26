"""Which uploads may enter the combination: a single NaN would poison everybody's model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from motet import tree
from motet.method import RoundInfo
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
    rejected = {c: why for c, why in _reasons(clients, uploads).items() if c not in lost}
    good = [i for i, client in enumerate(clients) if client not in rejected and client not in lost]
    if not good:
        return Received(None, (), lost, rejected)
    replied = tuple(clients[i] for i in good)
    if len(good) < len(clients):
        uploads = tree.tree_map(lambda leaf: leaf[torch.tensor(good)], uploads)
    weights = torch.tensor([setting.weight(client) for client in replied])
    return Received(setting.method.reduce.lift(replied, uploads, weights), replied, lost, rejected)


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
    # One sum per tensor tells that all is well; only then is there no need to look row by row.
    if all(leaf.sum().isfinite() for _, leaf in named):
        return {}
    return {
        client: f"{tree.readable(name)} holds a NaN or an infinity"
        for name, leaf in reversed(named)  # so that the first of several is the one reported
        for client, row in zip(clients, leaf, strict=True)
        if not row.isfinite().all()
    }
