"""How one client's rows are divided into training, validation and test data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from motet.data.partition.counts import apportion, deal, encode
from motet.errors import RequestError
from motet.keys import Key


class Cut(NamedTuple):
    """Positions of a client's rows, by split."""

    train: NDArray[np.int64]
    val: NDArray[np.int64]
    test: NDArray[np.int64]


@dataclass(frozen=True)
class Split:
    """Shares of a client's rows that are held out.

    The cut keeps the client's class mix as far as whole numbers allow. Training keeps at least one
    row; a share above zero gets at least one row, test before validation, as long as training
    keeps one.

    Attributes:
        val: Share for validation.
        test: Share for test, or "official" to keep the test set that comes with the data.
            Validation rows that come with the data are kept along with it; otherwise `val` is a
            share of the training rows.
    """

    val: float = 0.2
    test: float | Literal["official"] = 0.2

    def __post_init__(self) -> None:
        if isinstance(self.test, str) and self.test != "official":
            raise RequestError(f'test must be a share or "official"; {self.test!r} came.')
        held_out = self.val + self.test_share
        if not (self.val >= 0 and self.test_share >= 0 and held_out < 1):  # so that NaN is refused
            raise RequestError(
                f"val and test must be shares of at least 0 that leave something to train on; "
                f"val={self.val} and test={self.test} came."
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
        """Write the split down as values for JSON."""
        return asdict(self)

    def cut(self, labels: NDArray[Any], key: Key) -> Cut:
        """Divide the positions 0..len(labels)-1 of one client."""
        rows = len(labels)
        if self.val == self.test_share == 0:
            nothing = np.empty(0, np.int64)
            return Cut(np.arange(rows), nothing, nothing)
        test = _share(rows, self.test_share, spare=rows - 1)
        val = _share(rows, self.val, spare=rows - 1 - test)
        codes, stock = encode(labels)
        to_test = apportion(test, stock)
        to_val = apportion(val, stock - to_test)
        counts = np.stack([stock - to_test - to_val, to_val, to_test])  # [splits, classes]
        return Cut(*deal(codes, counts, key))


def _share(rows: int, share: float, spare: int) -> int:
    """Round half up, at least one row for a share above zero, and never more than can be spared."""
    wanted = max(1, int(rows * share + 0.5)) if share > 0 else 0
    return max(0, min(wanted, spare))
