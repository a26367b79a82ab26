"""Federations from a `torch.utils.data.Dataset`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motet.data.check import as_numbers
from motet.data.federation import Federation
from motet.data.partition import Partition
from motet.data.sources.rows import from_rows
from motet.errors import DataError


def from_dataset(
    dataset: Any,
    clients: Partition | Sequence[Any] | NDArray[Any],
    *,
    name: str = "dataset",
    **options: Any,
) -> Federation:
    """Make a federation of a map-style torch data set of pairs (x, y).

    The data set is read once, into memory, so that a random transform is drawn once and every
    method sees the same examples.

    Args:
        dataset: Anything with a length whose items are pairs (x, y).
        clients: The client of each item, or a partition that divides the items.
        name: What to call the data.
        options: As for `from_rows`: split, seed, classes, labels, coarse, normalize.
    """
    x, y = _read(dataset)
    return from_rows(x, y, clients, name=name, source={"from": "dataset"}, **options)


def _read(dataset: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    count = len(dataset)
    if not count:
        raise DataError("the data set is empty; at least one example is needed.")
    first_x, first_y = (as_numbers(value, "item 0") for value in dataset[0])
    x = np.empty((count, *first_x.shape), first_x.dtype)
    y = np.empty((count, *first_y.shape), first_y.dtype)
    for row in range(count):
        own_x, own_y = (as_numbers(value, f"item {row}") for value in dataset[row])
        if own_x.shape != first_x.shape:
            raise DataError(
                f"all items need inputs of one shape; item 0 has {first_x.shape}, "
                f"item {row} has {own_x.shape}."
            )
        x[row], y[row] = own_x, own_y
    return x, y
