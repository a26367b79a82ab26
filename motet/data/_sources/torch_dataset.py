"""Federations from a `torch.utils.data.Dataset`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motet.data._check import as_numbers
from motet.data._federation import Federation
from motet.data._partition import Partition
from motet.data._sources.rows import from_rows
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
        name: Name of the data.
        options: As for `from_rows`: split, seed, classes, labels, coarse, normalize.

    Returns:
        The federation.

    Raises:
        DataError: Items that cannot be used.

    Example:
        >>> import torch
        >>> pairs = torch.utils.data.TensorDataset(torch.ones(20, 3), torch.arange(20) % 2)
        >>> from_dataset(pairs, ["north", "south"] * 10).clients
        ('north', 'south')
    """
    x, y = _read(dataset)
    return from_rows(x, y, clients, name=name, source={"from": "dataset"}, **options)


def _read(dataset: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    count = len(dataset)
    if not count:
        raise DataError("the data set is empty; expected at least one example.")
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
