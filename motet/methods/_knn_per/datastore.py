"""Which of a client's examples kNN-Per stores."""

from __future__ import annotations

from typing import TypeAlias

import torch
from torch import Tensor

from motet._core.neighbours import Datastore
from motet._training.batching import Batches
from motet.errors import RequestError

Capacity: TypeAlias = int | float | None  # a count, a fraction of the client's examples, or all

NOTHING = Datastore(
    keys=torch.zeros(0, 0),
    labels=torch.zeros(0, dtype=torch.int64),
    real=torch.zeros(0, dtype=torch.bool),
)


def check_capacity(capacity: Capacity) -> None:
    """Refuse what is neither a count nor a fraction."""
    fraction = isinstance(capacity, float)
    if capacity is not None and (capacity < 0 or (fraction and capacity > 1)):
        raise RequestError(
            "capacity= is a count of examples (an int), a fraction between 0.0 and 1.0 (a float) "
            f"or None for all; got {capacity!r}."
        )


def count_stored(size: int, capacity: Capacity) -> int:
    """Say how many of `size` examples fit.

    >>> [count_stored(10, c) for c in (None, 3, 99, 0.25, 1.0)]
    [10, 3, 10, 2, 10]
    """
    if capacity is None:
        return size
    return round(capacity * size) if isinstance(capacity, float) else min(capacity, size)


def stored_rows(order: Batches, capacity: Capacity) -> tuple[Tensor, Tensor]:
    """Choose which examples are stored: the first of the client's own permutation.

    Returns their rows, in the order of the data so that a store with room for all of them is the
    same for every seed, and which of these are real.
    """
    most = order.x.shape[0]
    if isinstance(capacity, float):
        fits = (capacity * order.size.double()).round()
    else:
        fits = order.size.clamp(max=most if capacity is None else capacity)
    drawn, is_drawn = order.rows.flatten(), order.weight.flatten() > 0
    kept = torch.where(is_drawn & (is_drawn.cumsum(0) <= fits), drawn, most)
    rows = kept.sort().values[: count_stored(most, capacity)]
    return rows.clamp(max=most - 1), rows < most
