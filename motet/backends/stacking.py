"""Ragged clients as one stack: missing rows, steps and examples become weight-0 padding."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from motet.method import ClientData
from motet.plans import Batches


def stack_padded(clients: Sequence[ClientData]) -> ClientData:
    """Stack every phase; phases that walk the same examples share one stacked copy of them."""
    seen: dict[tuple[int, ...], Tensor] = {}

    def examples(tensors: list[Tensor]) -> Tensor:
        same = tuple(id(t) for t in tensors)
        if same not in seen:
            seen[same] = stack_ragged(tensors)
        return seen[same]

    def phase(many: list[Batches]) -> Batches:
        return Batches(
            x=examples([b.x for b in many]),
            y=examples([b.y for b in many]),
            size=torch.stack([b.size for b in many]),
            rows=stack_ragged([b.rows for b in many]),
            weight=stack_ragged([b.weight for b in many]),
            key=stack_ragged([b.key for b in many]),
            rate=torch.stack([b.rate for b in many]),
        )

    return {name: phase([client[name] for client in clients]) for name in clients[0]}


def stack_ragged(tensors: Sequence[Tensor]) -> Tensor:
    """Stack tensors of unequal sizes, padded with zeros at the end of each axis."""
    sizes = [max(t.shape[axis] for t in tensors) for axis in range(tensors[0].ndim)]

    def padded(t: Tensor) -> Tensor:
        gaps = [size - have for size, have in zip(sizes, t.shape, strict=True)]
        return pad(t, [g for gap in reversed(gaps) for g in (0, gap)]) if any(gaps) else t

    return torch.stack([padded(t) for t in tensors])
