"""Stacks of ragged clients: missing rows, steps and examples become weight-0 padding."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from motet._training.batching import Batches
from motet.method import ClientData


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
    if len(tensors) == 1:
        return tensors[0][None]  # no copy
    shapes = [tuple(t.shape) for t in tensors]
    if len(set(shapes)) == 1:
        return torch.stack(list(tensors))
    largest = [max(sizes) for sizes in zip(*shapes, strict=True)]
    stacked = tensors[0].new_zeros((len(tensors), *largest))
    # Through numpy, which takes a tenth of torch's time to find its way to a small corner.
    rows = stacked.numpy()
    for row, shape, tensor in zip(rows, shapes, tensors, strict=True):
        row[tuple(map(slice, shape))] = tensor.numpy()
    return stacked
