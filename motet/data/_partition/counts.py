"""Tables of counts, [clients, strata], and the assignment of rows by them.

Every partition first decides how many rows of each stratum a client gets. The counts of a stratum
add up to its number of rows, so no row can be lost or assigned twice.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motet._core.keys import Key
from motet.data._partition.base import Rows

Counts = NDArray[np.int64]


def apportion(total: int, weights: NDArray[Any]) -> Counts:
    """Share `total` in proportion to `weights`, in whole numbers with exactly that sum.

    The largest remainders are rounded up. If `total` is at most the sum of the weights, no share
    exceeds its weight.

    >>> apportion(10, np.array([1, 1, 1])).tolist()
    [4, 3, 3]
    """
    weights = np.asarray(weights)
    if not weights.any():
        weights = np.ones(len(weights), np.int64)
    whole, remainder = np.divmod(total * weights, weights.sum())
    shares = whole.astype(np.int64)
    largest = np.argsort(-remainder, kind="stable")
    shares[largest[: total - shares.sum()]] += 1
    return shares


def share_of(rows: int, share: float, *, at_most: int) -> int:
    """Round a share half up, to at least one row if it is above zero, and at most `at_most`."""
    wanted = max(1, int(rows * share + 0.5)) if share > 0 else 0
    return max(0, min(wanted, at_most))


def share_equally(holds: NDArray[np.bool_], stock: Counts) -> Counts:
    """Split the rows of each stratum equally among the clients that hold it."""
    columns = [
        apportion(int(rows), held) if held.any() else np.zeros(len(held), np.int64)
        for rows, held in zip(stock, holds.T.astype(np.int64), strict=True)
    ]
    return np.stack(columns, axis=1)  # [clients, strata]


def raise_to_minimum(counts: Counts, minimum: int) -> Counts:
    """Give every client at least `minimum` rows, from the others in proportion to their surplus.

    Donors give from all their strata in proportion. The rows are handed out in runs of one stratum,
    so that a skewed partition stays skewed for the small clients too.
    """
    sizes = counts.sum(axis=1)
    lacking = np.maximum(minimum - sizes, 0)
    if not lacking.any():
        return counts
    raised, pool = counts.copy(), np.zeros(counts.shape[1], np.int64)
    gifts = apportion(int(lacking.sum()), np.maximum(sizes - minimum, 0))
    for donor in np.flatnonzero(gifts):
        gift = apportion(int(gifts[donor]), counts[donor])
        raised[donor] -= gift
        pool += gift
    return _hand_out(raised, pool, lacking)


def _hand_out(counts: Counts, pool: Counts, lacking: Counts) -> Counts:
    poor = np.flatnonzero(lacking)
    # In the order of their own main stratum, so that a run tends to be of a stratum that the
    # client already holds.
    poor = poor[np.argsort(counts[poor].argmax(axis=1), kind="stable")]
    units = np.repeat(np.arange(len(pool)), pool)
    for client, gift in zip(poor, np.split(units, np.cumsum(lacking[poor])[:-1]), strict=True):
        counts[client] += np.bincount(gift, minlength=len(pool))
    return counts


def group_rows(owner: NDArray[np.int64], groups: int) -> list[Rows]:
    """List the rows of each group 0..groups-1 in ascending order; rows of group -1 are left out.

    >>> [rows.tolist() for rows in group_rows(np.array([1, 0, -1, 1]), 3)]
    [[1], [0, 3], []]
    """
    order = stable_order(owner + 1, groups + 1)
    bounds = np.searchsorted(owner[order], np.arange(groups + 1))
    return [order[start:stop] for start, stop in pairwise(bounds)]


def stable_order(codes: NDArray[Any], groups: int) -> NDArray[np.int64]:
    """Sort rows by codes 0..groups-1."""
    return np.argsort(codes.astype(code_type(groups), copy=False), kind="stable")


def code_type(groups: int) -> type[np.uint16] | type[np.int64]:
    """Return a type for codes 0..groups-1; numpy sorts 16-bit numbers many times faster."""
    return np.uint16 if groups <= 1 << 16 else np.int64


def deal(strata: NDArray[np.int64], counts: Counts, key: Key) -> list[Rows]:
    """Shuffle the rows of each stratum and assign them to clients by `counts`."""
    clients = np.arange(len(counts))
    owner = np.full(len(strata), -1, np.int64)
    for stratum, rows in enumerate(group_rows(strata, counts.shape[1])):
        shuffled = key.fold("deal", stratum).numpy().permutation(rows)
        owners = np.repeat(clients, counts[:, stratum])
        owner[shuffled[: len(owners)]] = owners
    return group_rows(owner, len(counts))


def encode(labels: NDArray[Any]) -> tuple[NDArray[np.int64], Counts]:
    """Replace labels by their rank, 0 for the smallest; return the ranks and the count of each."""
    _, codes, stock = np.unique(np.asarray(labels), return_inverse=True, return_counts=True)
    return codes.astype(np.int64), stock.astype(np.int64)
