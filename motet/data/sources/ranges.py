"""Federations of very many clients whose examples follow each other in one array or file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motet.data.assignment import Assignment
from motet.data.chain import Block, Chain, NpyFile
from motet.data.check import as_numbers
from motet.data.federation import Federation
from motet.data.numbered import Numbered
from motet.data.raw import SPLITS, Normalize
from motet.data.sources.common import count_classes
from motet.errors import DataError


@dataclass(frozen=True)
class RowFile:
    """A `.npy` file that is read row by row.

    Not mapped: the pages of a map count as memory of the process for as long as it is open, and
    clients from all over the file would soon bring in all of it.
    """

    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    start: int  # of the first row, in bytes

    @classmethod
    def at(cls, path: Path) -> RowFile:
        """Read the header of the file at `path`."""
        mapped = NpyFile.at(path)  # refuses what is no array
        size = prod(mapped.shape) * mapped.dtype.itemsize
        return cls(path, mapped.shape, mapped.dtype, path.stat().st_size - size)

    def __getitem__(self, rows: Any) -> NDArray[Any]:
        """Read rows: those of a client follow each other, and so are one read."""
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
    """Cells that follow each other in the data, so that nobody has to list their rows."""

    @classmethod
    def between(cls, offsets: NDArray[Any]) -> Ranges:
        """Say where each cell starts."""
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
    """Make a federation whose clients own consecutive rows: a million of them cost some 20 MB.

    Clients are called by their number ("0000000" on). Rows are read when a client is, so files may
    be larger than memory; what is in them is not looked at beforehand.

    Args:
        x: Inputs of all clients, one after another: an array, or the path of a `.npy` file.
        y: Targets, likewise.
        starts: The first row of every client, and the number of rows at the end, [clients + 1].
        val: How many of each client's last rows are for validation.
        test: How many after those are for testing.
        classes: Number of classes; None counts them where targets are integers, floats mean
            regression.
        labels: Class names.
        normalize: Affine map that is applied when examples are read.
        name: What to call the data.
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
    """Say where each cell starts, [3 * clients + 1]."""
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
            f"starts must be a list of first rows that ends with the number of rows; x has "
            f"{rows[0]} rows, y {rows[1]}, and starts has shape {bounds.shape}."
        )
    few = np.flatnonzero(np.diff(bounds) <= held)
    if bounds[0] != 0 or len(few):
        raise DataError(
            "starts must begin with 0 and leave every client a row to train on beside the "
            f"{held} that are held out; see client {int(few[0]) if len(few) else 0}."
        )
