"""`Split`: divides one client's rows into training, validation and test data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from motet._core.keys import Key
from motet.data._assignment import Assignment
from motet.data._partition.counts import apportion, code_type, deal, encode, share_of, stable_order
from motet.errors import RequestError


class Cut(NamedTuple):
    """Positions of a client's rows, by split."""

    train: NDArray[np.int64]
    val: NDArray[np.int64]
    test: NDArray[np.int64]


@dataclass(frozen=True)
class Split:
    """Shares of a client's rows for validation and test.

    The cut keeps the client's class mix as far as whole numbers allow. Training keeps at least one
    row; of the rest, a share above zero gets at least one row, test before validation.

    Attributes:
        val: Share for validation.
        test: Share for test, or "official" to keep the data's own test set. With "official",
            validation rows of the data are kept too; if there are none, `val` is a share of the
            training rows.

    Example:
        >>> Split(val=0.1, test=0.3).test
        0.3
    """

    val: float = 0.2
    test: float | Literal["official"] = 0.2

    def __post_init__(self) -> None:
        if isinstance(self.test, str) and self.test != "official":
            raise RequestError(
                f'test must be a share or "official", got {self.test!r}.', option="test"
            )
        held_out = self.val + self.test_share
        if not (self.val >= 0 and self.test_share >= 0 and held_out < 1):  # so that NaN is refused
            raise RequestError(
                f"val and test must be shares of at least 0 whose sum is below 1; "
                f"got val={self.val} and test={self.test}."
            )

    @property
    def official(self) -> bool:
        """Whether the data's own test set is kept."""
        return self.test == "official"

    @property
    def test_share(self) -> float:
        """The share of a client's own rows that becomes test data."""
        return 0.0 if isinstance(self.test, str) else self.test

    def recipe(self) -> dict[str, Any]:
        """Return the split as JSON values."""
        return asdict(self)

    def cut(self, labels: NDArray[Any], key: Key) -> Cut:
        """Divide the rows of one client into train, val and test.

        Args:
            labels: Label of each row.
            key: Source of the randomness.

        Returns:
            Positions in `labels` for each split.
        """
        rows = len(labels)
        if self.val == self.test_share == 0:
            nothing = np.empty(0, np.int64)
            return Cut(np.arange(rows), nothing, nothing)
        test = share_of(rows, self.test_share, at_most=rows - 1)
        val = share_of(rows, self.val, at_most=rows - 1 - test)
        codes, stock = encode(labels)
        to_test = apportion(test, stock)
        to_val = apportion(val, stock - to_test)
        counts = np.stack([stock - to_test - to_val, to_val, to_test])  # [splits, classes]
        return Cut(*deal(codes, counts, key))

    def cut_all(
        self,
        labels: NDArray[Any],
        rows: NDArray[np.int64],
        owner: NDArray[np.int64],
        clients: Sequence[str],
        key: Key,
    ) -> Assignment:
        """Divide the rows of all clients as `cut` does for each, without a loop over their rows.

        Args:
            labels: Label of each row of the data; clients number their own labels.
            rows: Rows of all clients; those of one client are cut in this order.
            owner: Number of the client of each of these rows.
            clients: Their names; client c cuts with the key `key.fold(c)`.
            key: Of all cuts.
        """
        sizes = np.bincount(owner, minlength=len(clients))
        holder, rows, first = _grouped(labels, rows, owner, len(clients))
        stock = np.diff(np.append(first, len(rows)))
        counts = self._counts(stock, holder, sizes)
        number = np.arange(len(first)) - np.searchsorted(holder, holder)  # of the client's labels
        # Rows of a group in a random order: the first are for training, then val, then test.
        shuffled = np.arange(len(rows))
        cut = stock > counts[0]
        pairs = zip(holder[cut].tolist(), number[cut].tolist(), strict=True)
        names = [(clients[client], "deal", label) for client, label in pairs]
        bounds = zip(first[cut].tolist(), (first + stock)[cut].tolist(), strict=True)
        for (start, end), random in zip(bounds, key.numpy_streams(names), strict=True):
            random.shuffle(shuffled[start:end])
        split = np.empty(len(rows), np.uint8)
        split[shuffled] = _splits_in_order(counts)
        del shuffled  # a million rows are eight megabytes
        cells = 3 * len(clients)
        cell = np.repeat((3 * holder).astype(code_type(cells)), stock) + split
        return _assigned(cell, rows, cells)

    def _counts(
        self, stock: NDArray[np.int64], holder: NDArray[np.int64], sizes: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Compute how many rows of each group become train, val and test."""
        different, place = np.unique(sizes, return_inverse=True)  # clients of one size are alike
        tests = [share_of(n, self.test_share, at_most=n - 1) for n in different.tolist()]
        vals = [
            share_of(n, self.val, at_most=n - 1 - t)
            for n, t in zip(different.tolist(), tests, strict=True)
        ]
        to_test = _apportion_all(np.asarray(tests, np.int64)[place], stock, holder)
        to_val = _apportion_all(np.asarray(vals, np.int64)[place], stock - to_test, holder)
        return stock - to_test - to_val, to_val, to_test


def _grouped(
    labels: NDArray[Any], rows: NDArray[np.int64], owner: NDArray[np.int64], clients: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Sort rows by client and label: each group's client, the rows, and where each group starts.

    A group is a client's rows of one label.
    """
    codes, kinds = _ranks(labels)
    small = code_type(clients * kinds + 1)  # holds the number of kinds, too
    group = np.multiply(owner, kinds, dtype=small, casting="unsafe")
    group += codes[rows].astype(small)
    order = stable_order(group, clients * kinds)
    group = group[order]
    new = np.ones(len(rows), bool)
    new[1:] = group[1:] != group[:-1]
    first = np.flatnonzero(new)
    return group[first].astype(np.int64) // kinds, rows[order], first


def _ranks(labels: NDArray[Any]) -> tuple[NDArray[Any], int]:
    """Number labels by rank, as `np.unique` does, and count the different ones."""
    low, high = (0, -1) if not len(labels) else (labels.min(), labels.max())
    if labels.dtype.kind not in "iu" or not 0 <= low <= high < len(labels):
        kinds, codes = np.unique(labels, return_inverse=True)
        return codes, len(kinds)
    there = np.zeros(int(high) + 1, bool)  # small whole numbers need not be sorted
    there[labels] = True
    return (labels if there.all() else (np.cumsum(there) - 1)[labels]), int(there.sum())


def _splits_in_order(
    counts: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]],
) -> NDArray[np.uint8]:
    """List the split of each row, group by group: first train, then val, then test."""
    kinds = np.tile(np.arange(len(counts), dtype=np.uint8), len(counts[0]))
    return np.repeat(kinds, np.stack(counts, axis=1).ravel())


def _assigned(cell: NDArray[Any], rows: NDArray[Any], cells: int) -> Assignment:
    """Group rows by cell, in ascending order within each."""
    offsets = np.concatenate([[0], np.cumsum(np.bincount(cell, minlength=cells))])
    last = int(rows.max(initial=-1))
    cell_of = np.full(last + 1, cells, code_type(cells + 1))  # after the last cell: in none
    cell_of[rows] = cell
    index = stable_order(cell_of, cells + 1)[: len(rows)]
    return Assignment(index.astype(np.int32 if last < 2**31 else np.int64), offsets)


def _apportion_all(
    totals: NDArray[np.int64], weights: NDArray[np.int64], holder: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Share each client's total among its groups as `apportion` does; groups are sorted by client.

    No total may exceed the sum of the client's weights.
    """
    sums = np.bincount(holder, weights=weights, minlength=len(totals)).astype(np.int64)
    shares, remainder = np.divmod(totals[holder] * weights, np.maximum(sums, 1)[holder])
    given = np.bincount(holder, weights=shares, minlength=len(totals)).astype(np.int64)
    order = np.lexsort((-remainder, holder))  # stable: the largest remainders of each client first
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order)) - np.searchsorted(holder, holder[order])
    return np.asarray(shares + (rank < (totals - given)[holder]))
