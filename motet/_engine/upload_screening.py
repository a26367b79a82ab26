"""Screening of uploads: a single NaN would spoil the combined model."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from motet._core import tree
from motet._core.aggregation.mean import Total
from motet._core.half_precision import rounded
from motet._engine.finite import not_finite_rows
from motet._engine.run_spec import RunSpec, down_for
from motet.method import RoundInfo

LARGE = 1e12  # no model that learns has such numbers, so the sender is noted


class Received(NamedTuple):
    """What has arrived of some clients' uploads, combined."""

    partial: Any  # of the method's reduction; None without usable uploads
    replied: tuple[str, ...]  # clients whose uploads are in it
    lost: tuple[str, ...]  # clients whose replies never arrived
    rejected: dict[str, str]  # clients whose uploads were refused, and why
    large: dict[str, float]  # whose uploads hold suspiciously large numbers, and how large


def receive(
    setting: RunSpec, info: RoundInfo, down: Any, clients: Sequence[str], uploads: Any
) -> Received:
    """Combine the uploads of a stack of clients, less what is lost and what is not a number."""
    faults, key = setting.faults, setting.key
    uploads = rounded(uploads, setting.uploads)
    lost = tuple(filter(faults.losing(info.number, key), clients)) if faults.lost else ()
    if faults.corrupt:
        uploads = _corrupted(setting, down, clients, uploads)
    replied, uploads = _without(lost, clients, uploads)
    partial = _lifted(setting, replied, uploads)
    size = _size(partial, uploads)
    if size < LARGE:
        return Received(partial, replied, lost, {}, {})
    rejected = not_finite_rows(replied, uploads)
    if rejected:
        replied, uploads = _without(rejected, replied, uploads)
        partial = _lifted(setting, replied, uploads)
    elif not math.isfinite(size):
        partial = _lifted_in_double(setting, replied, uploads, partial)
    return Received(partial, replied, lost, rejected, _large(replied, uploads))


def _without(
    unwanted: Collection[str], clients: Sequence[str], uploads: Any
) -> tuple[tuple[str, ...], Any]:
    kept = [i for i, client in enumerate(clients) if client not in unwanted]
    if len(kept) < len(clients):
        uploads = tree.tree_map(lambda leaf: leaf[kept], uploads)
    return tuple(clients[i] for i in kept), uploads


def _lifted(setting: RunSpec, clients: Sequence[str], uploads: Any) -> Any:
    if not clients:
        return None
    weights = torch.tensor([setting.weight(client) for client in clients])
    return setting.method.reduce.lift(clients, uploads, weights)


def _lifted_in_double(setting: RunSpec, clients: Sequence[str], uploads: Any, partial: Any) -> Any:
    """Combine again where finite numbers have overflown; only sums can."""
    if not isinstance(partial, Total):
        return partial
    doubles = tree.tree_map(lambda leaf: leaf.double() if _is_float(leaf) else leaf, uploads)
    return _lifted(setting, clients, doubles)._replace(kinds=partial.kinds)


def _size(partial: Any, uploads: Any) -> float:
    """Say about how large the numbers are, by one pass of sums; NaN and infinity are infinity."""
    # One bad number spoils the total it enters, so a total is all there is to look at.
    looked_at, weight = (
        (partial.value, partial.weight or 1.0) if isinstance(partial, Total) else (uploads, 1.0)
    )
    sums = [leaf.sum() for leaf in tree.leaves(looked_at) if _is_float(leaf)]
    most = float(torch.stack([s.double() for s in sums]).abs().max()) if sums else 0.0
    return most / weight if math.isfinite(most) else math.inf


def _large(clients: Sequence[str], uploads: Any) -> dict[str, float]:
    sizes = {client: tree.largest(tree.row(uploads, i)) for i, client in enumerate(clients)}
    return {client: size for client, size in sizes.items() if size >= LARGE}


def _is_float(leaf: Tensor) -> bool:
    return leaf.is_floating_point()


def _corrupted(setting: RunSpec, down: Any, clients: Sequence[str], uploads: Any) -> Any:
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
