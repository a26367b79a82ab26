"""Which rows belong to which client and split, in one flat index."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motet.data._raw import SPLITS

_WIDTH = len(SPLITS)


@dataclass(frozen=True)
class Assignment:
    """The rows of all cells (client, split), one after another.

    Two flat arrays instead of an array per cell, so that a million clients fit in memory.

    Attributes:
        index: Row numbers, cell by cell; four bytes each if they fit.
        offsets: Where each cell starts; client c's split s is cell `3 * c + s`.
    """

    index: NDArray[Any]
    offsets: NDArray[np.int64]  # [3 * clients + 1]

    @classmethod
    def of(cls, cells: Iterable[NDArray[Any]]) -> Assignment:
        """Join cells: train, val and test of the first client, then of the second, and so on."""
        rows = list(cells)
        offsets = np.concatenate([[0], np.cumsum([len(cell) for cell in rows], dtype=np.int64)])
        index = np.concatenate([np.empty(0, np.int64), *rows])
        return cls(index.astype(np.int32 if index.max(initial=0) < 2**31 else np.int64), offsets)

    def rows(self, client: int, split: int) -> NDArray[Any]:
        """Row numbers of one cell."""
        cell = _WIDTH * client + split
        return self.index[self.offsets[cell] : self.offsets[cell + 1]]

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Number of rows of every cell, [clients, splits]."""
        return np.diff(self.offsets).reshape(-1, _WIDTH)

    def pick(self, train: Sequence[int], held: Sequence[int]) -> Assignment:
        """Give the i-th client the training rows of `train[i]`, and val and test of `held[i]`."""
        cells = (
            self.rows(source if split == 0 else judge, split)
            for source, judge in zip(train, held, strict=True)
            for split in range(_WIDTH)
        )
        return Assignment.of(cells)

    def owner_of(self, row: int) -> tuple[int, int] | None:
        """Find the client and split of a row; a linear search, for error messages."""
        places = np.flatnonzero(self.index == row)
        if not len(places):
            return None
        return divmod(int(np.searchsorted(self.offsets, places[0], side="right")) - 1, _WIDTH)

    def clients_of(self, split: int) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Return (client, row) for every row of a split, as two arrays."""
        sizes = self.sizes
        is_split = np.tile(np.arange(_WIDTH) == split, len(sizes))
        rows = self.index[np.repeat(is_split, sizes.ravel())]
        return np.repeat(np.arange(len(sizes)), sizes[:, split]), rows
