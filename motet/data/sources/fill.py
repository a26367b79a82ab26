"""Missing numbers and scales, found on training rows only."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from motet.data.assignment import Assignment
from motet.data.raw import SPLITS, Normalize
from motet.errors import DataError, RequestError

Missing = Literal["error", "median", "client-median"]
Matrix = NDArray[np.float32]


def fill_missing(x: Matrix, rows: Assignment, columns: tuple[str, ...], *, how: Missing) -> None:
    """Fill NaNs in place with medians of training rows.

    "client-median" uses what the client itself knows, as in a real federation; "median" pools
    all clients.
    """
    if how not in ("error", "median", "client-median"):
        raise RequestError(f'missing must be "error", "median" or "client-median"; {how!r} came.')
    holes = np.isnan(x)
    if how == "error" or not holes.any():
        return
    _, train = rows.clients_of(0)
    everybody = _medians(x[train])
    unknown = np.flatnonzero(holes.any(axis=0) & np.isnan(everybody))
    if len(unknown):
        raise DataError(
            f'column "{columns[unknown[0]]}" has no value in any training row, so no median. '
            "List the `features` without it."
        )
    for client in range(len(rows.sizes)):
        own = _medians(x[rows.rows(client, 0)]) if how == "client-median" else everybody
        fill = np.where(np.isnan(own), everybody, own)
        for split in range(len(SPLITS)):
            _fill(x, rows.rows(client, split), fill)


def _fill(x: Matrix, rows: NDArray[np.int64], fill: Matrix) -> None:
    values = x[rows]
    x[rows] = np.where(np.isnan(values), fill, values)


def _medians(x: Matrix) -> Matrix:
    """Median of each column's known values; NaN where there are none."""
    medians = np.full(x.shape[1], np.nan, np.float32)
    for column, values in enumerate(x.T):
        known = values[~np.isnan(values)]
        if len(known):
            medians[column] = np.median(known)
    return medians


def standardizer(x: Matrix, rows: Assignment) -> Normalize:
    """Find each column's mean and deviation over all training rows; 1 for a constant one."""
    _, train = rows.clients_of(0)
    values = x[train].astype(np.float64)
    std = values.std(axis=0)
    std[std == 0] = 1.0
    return Normalize(tuple(values.mean(axis=0).tolist()), tuple(std.tolist()))
