"""Federations of very many clients whose examples are consecutive rows of one array or file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motet.data._assignment import Assignment
from motet.data._chain import Block, Chain, NpyFile
from motet.data._check import as_numbers
from motet.data._federation import Federation
from motet.data._numbered import Numbered
from motet.data._raw import SPLITS, Normalize
from motet.data._sources.common import count_classes
from motet.errors import DataError


@dataclass(frozen=True)
class RowFile:
    """A `.npy` file from which only the requested rows are read.

    Not memory-mapped: the pages of a map count as memory of the process as long as it is open, and
    clients from all parts of the file would soon load all of it.
    """

    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    start: int  # of the first row, in bytes

    @classmethod
    def at(cls, path: Path) -> RowFile:
        """Read the header of the file at `path`."""
        mapped = NpyFile.at(path)  # raises an error if the file is not an array
        size = prod(mapped.shape) * mapped.dtype.itemsize
        return cls(path, mapped.shape, mapped.dtype, path.stat().st_size - size)

    def __getitem__(self, rows: Any) -> NDArray[Any]:
        """Read rows in one go: those of a client are consecutive."""
        wanted = np.arange(self.shape[0])[rows] if isinstance(rows, slice) else np.asarray(rows)
        if not len(wanted):
            return np.empty((0, *self.shape[1:]), self.dtype)
        first, last = int(wanted.min()), int(wanted.max()) + 1
        each = prod(self.shape[1:])
        skip = self.start + first * each * self.dtype.itemsize
        read = np.fromfile(self.path, self.dtype, (last - first) * each, offset=skip)
        return read.reshape(-1, *self.shape[1:])[wanted - first]


@dataclass(frozen=True)
class Ranges(Assignment):
    """Cells of consecutive rows, so that their row numbers need not be stored."""

    @classmethod
    def between(cls, offsets: NDArray[Any]) -> Ranges:
        """Make cells from the first row of each, and the number of rows."""
        return cls(np.empty(0, np.int64), offsets)

    def rows(self, client: int, split: int) -> NDArray[Any]:
        """Row numbers of one cell."""
        cell = len(SPLITS) * client + split
        return np.arange(self.offsets[cell], self.offsets[cell + 1])

    def owner_of(self, row: int) -> tuple[int, int] | None:
        """Find the client and split that a row belongs to."""
        return divmod(int(np.searchsorted(self.offsets, row, side="right")) - 1, len(SPLITS))


def from_ranges(
    x: Any,
    y: Any,
    starts: Sequence[int] | NDArray[Any],
    *,
    val: int = 0,
    test: int = 0,
    classes: int | None = None,
    labels: Sequence[str] | None = None,
    normalize: Normalize | None = None,
    name: str = "ranges",
) -> Federation:
    """Make a federation whose clients own consecutive rows: a million clients take about 20 MB.

    Client ids are numbers ("0000000", "0000001", ...). Rows are read when a client needs them, so
    files may be larger than memory; their contents are not checked in advance.

    Args:
        x: Inputs of all clients, one after another: an array, or the path of a `.npy` file.
        y: Targets, in the same order.
        starts: The first row of every client, and the number of rows at the end, [clients + 1].
        val: Number of validation rows per client, before its test rows.
        test: Number of test rows per client, its last ones.
        classes: Number of classes; None counts them if targets are integers; floats mean
            regression.
        labels: Class names.
        normalize: Affine map that is applied when examples are read.
        name: Name of the data.

    Returns:
        The federation.

    Raises:
        DataError: The ranges do not fit the rows.

    Example:
        >>> import numpy as np
        >>> x, y = np.ones((10, 3), np.float32), np.arange(10) % 2
        >>> list(from_ranges(x, y, [0, 4, 10], test=1).clients)
        ['0', '1']
    """
    inputs, targets = _block(x, "x"), _block(y, "y")
    bounds = np.asarray(starts)
    _check(inputs, targets, bounds, val + test)
    chain = Chain.of([targets])
    return Federation(
        name=name,
        clients=Numbered(len(bounds) - 1),
        x=Chain.of([inputs]),
        y=chain,
        rows=Ranges.between(_offsets(bounds, val, test)),
        classes=count_classes(chain, classes, labels),
        labels=None if labels is None else tuple(labels),
        normalize=normalize,
        recipe={"source": {"from": "ranges"}, "val": val, "test": test},
    )


def _block(values: Any, what: str) -> Block:
    return RowFile.at(Path(values)) if isinstance(values, str | Path) else as_numbers(values, what)


def _offsets(bounds: NDArray[Any], val: int, test: int) -> NDArray[Any]:
    """Compute the first row of each cell, [3 * clients + 1]."""
    small = bounds[-1] < 2**31
    offsets = np.empty(len(SPLITS) * (len(bounds) - 1) + 1, np.int32 if small else np.int64)
    offsets[0::3] = bounds
    offsets[1::3] = bounds[1:] - (val + test)
    offsets[2::3] = bounds[1:] - test
    return offsets


def _check(x: Block, y: Block, bounds: NDArray[Any], held: int) -> None:
    rows = (x.shape[0], y.shape[0])
    if len(set(rows)) > 1 or bounds.ndim != 1 or len(bounds) < 2 or bounds[-1] != rows[0]:
        raise DataError(
            f"starts must list the first row of each client and then the number of rows; x has "
            f"{rows[0]} rows, y has {rows[1]}, and starts has shape {bounds.shape}."
        )
    few = np.flatnonzero(np.diff(bounds) <= held)
    if bounds[0] != 0 or len(few):
        raise DataError(
            f"starts must begin with 0 and give every client more than {held} rows, since {held} "
            f"are held out; see client {int(few[0]) if len(few) else 0}."
        )
