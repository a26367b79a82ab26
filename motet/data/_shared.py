"""A pool of training rows that all clients use in addition to their own.

Zhao et al., "Federated Learning with Non-IID Data", 2018. https://arxiv.org/abs/1806.00582
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from motet._core.keys import Key
from motet.data._assignment import Assignment
from motet.data._partition.base import Rows
from motet.data._partition.counts import Counts, deal, encode, share_of
from motet.errors import RequestError

if TYPE_CHECKING:  # the federation shares its own rows, so it cannot be imported here
    from motet.data._federation import Federation

Donors = Literal["keep", "give"]
TRAIN = 0


def share_rows(
    federation: Federation, *, beta: float, alpha: float, donors: Donors, seed: int
) -> Assignment:
    """Add a part of one pool to every client's training rows; val and test rows are unchanged."""
    check_shares(beta, alpha, donors)
    key = Key(seed).fold("shared data")
    pool = draw_pool(federation, beta, key)
    size = share_of(len(pool), alpha, at_most=len(pool))

    def training_rows(position: int, client: str) -> Rows:
        own = federation.rows.rows(position, TRAIN)
        if donors == "give":
            own = own[~np.isin(own, pool)]
        part = key.fold("part", client).numpy().permutation(pool)[:size]
        return np.concatenate([own, np.sort(part[~np.isin(part, own)])])

    def cells() -> Iterator[Rows]:
        for position, client in enumerate(federation.clients):
            yield training_rows(position, client)
            yield from (federation.rows.rows(position, split) for split in (1, 2))

    return Assignment.of(cells())


def draw_pool(federation: Federation, beta: float, key: Key) -> Rows:
    """Draw a share of all training rows, balanced over classes as far as there are rows."""
    rows = np.unique(federation.rows.clients_of(TRAIN)[1])
    codes, stock = encode(_strata(federation, rows))
    counts = balanced(share_of(len(rows), beta, at_most=len(rows)), stock)
    drawn = deal(codes, counts[None], key.fold("pool"))[0]
    return rows[drawn]


def balanced(total: int, stock: Counts) -> Counts:
    """Divide `total` rows equally among classes, none of which gives more than its stock.

    >>> balanced(9, np.array([10, 1, 10])).tolist()
    [4, 1, 4]
    """
    taken = np.zeros_like(stock)
    while taken.sum() < total:
        left = np.flatnonzero(taken < stock)
        each = max((total - int(taken.sum())) // len(left), 1)
        for kind in left[: total - int(taken.sum())]:
            taken[kind] += min(each, stock[kind] - taken[kind])
    return taken


def _strata(federation: Federation, rows: Rows) -> NDArray[np.int64]:
    """Return the class of each row; for regression and sequences all rows are in one stratum."""
    labels = federation.y.take(rows)
    if federation.classes is None or labels.ndim > 1:
        return np.zeros(len(rows), np.int64)
    return labels.astype(np.int64)


def check_shares(beta: float, alpha: float, donors: str) -> None:
    """Refuse values that are out of range."""
    if not (0 <= beta <= 1 and 0 < alpha <= 1):
        raise RequestError(
            f"beta= is a share of the training rows, from 0 to 1, and alpha= a share of the pool, "
            f"above 0 and at most 1; got beta={beta} and alpha={alpha}."
        )
    if donors not in ("keep", "give"):
        raise RequestError(f'donors= must be "keep" or "give", got {donors!r}.')
