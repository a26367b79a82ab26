"""Federations from one array whose rows belong to different clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motet.data._chain import Chain
from motet.data._check import as_numbers, check_pair
from motet.data._divide import divide
from motet.data._federation import Federation
from motet.data._partition import Natural, Partition
from motet.data._raw import Normalize, Raw
from motet.data._sources.common import count_classes, split_names
from motet.data._split import Split
from motet.errors import DataError

SplitOrColumn = Split | Sequence[str] | NDArray[Any]


def from_rows(
    x: Any,
    y: Any,
    clients: Partition | Sequence[Any] | NDArray[Any],
    *,
    split: SplitOrColumn | None = None,
    seed: int = 0,
    classes: int | None = None,
    labels: Sequence[str] | None = None,
    coarse: NDArray[Any] | None = None,
    normalize: Normalize | None = None,
    name: str = "rows",
    source: Mapping[str, Any] | None = None,
) -> Federation:
    """Make a federation of one array x and one array y, numpy or torch; a memory map stays on disk.

    Args:
        x: Inputs, one row per example.
        y: Targets, one per row.
        clients: The client of each row, or a partition that divides the rows.
        split: How each client's rows are cut (default: `Split()`), or "train", "val" or "test" for
            each row.
        seed: Seed of the partition and of the cut.
        classes: Number of classes; None counts them if targets are integers; floats mean
            regression.
        labels: Class names.
        coarse: A coarse label per row, for `TwoLevelDirichlet`.
        normalize: Affine map that is applied when examples are read.
        name: Name of the data.
        source: Origin of the rows, for the manifest.

    Returns:
        The federation.

    Raises:
        DataError: Rows that cannot be used.

    Example:
        >>> import numpy as np
        >>> x, y = np.ones((20, 3), np.float32), np.arange(20) % 2
        >>> from_rows(x, y, ["north", "south"] * 10).clients
        ('north', 'south')
    """
    x, y = as_numbers(x, "x"), as_numbers(y, "y")
    check_pair(x, y, f'"{name}"')
    own_clients = not isinstance(clients, Partition)
    own_split = split is not None and not isinstance(split, Split)
    raw = Raw(
        x=x,
        y=y,
        clients=_column(clients, len(y), "clients") if own_clients else None,
        split=split_names(_column(split, len(y), "split")) if own_split else None,
        labels=None if labels is None else tuple(labels),
        coarse=None if coarse is None else _column(coarse, len(y), "coarse"),
        normalize=normalize,
        classes=count_classes(Chain.of([y]), classes, labels),
    )
    cut = split if isinstance(split, Split) else Split(test="official") if own_split else Split()
    partition = clients if isinstance(clients, Partition) else Natural()
    return divide(raw, partition, cut, name=name, seed=seed, source=source or {"from": "rows"})


def _column(values: Any, rows: int, name: str) -> NDArray[Any]:
    column = np.asarray(values)
    if column.shape != (rows,):
        raise DataError(
            f"{name} must have one entry per row, {rows} in all; got shape {column.shape}."
        )
    return column
