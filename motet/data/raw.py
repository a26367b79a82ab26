"""A data set before it is divided among clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from motet.errors import RequestError

SplitName = Literal["train", "val", "test"]
SPLITS: tuple[SplitName, ...] = ("train", "val", "test")


@dataclass(frozen=True)
class Normalize:
    """An affine map `(x - mean) / std`, one number per channel (first axis of an x) or for all.

    uint8 images are brought to [0, 1] first, so that the published means and deviations fit.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std) or not self.mean:
            raise RequestError(
                f"normalize needs one mean and one std per channel; "
                f"{len(self.mean)} means and {len(self.std)} deviations came."
            )
        if min(self.std) <= 0:
            raise RequestError(f"every std must be above 0; {self.std} came.")


@dataclass(frozen=True)
class Raw:
    """A data set as it lies on disk.

    Attributes:
        x: One row per example, channels first; a memory map is welcome. uint8 is read as an image
            (divided by 255), any other integer type as tokens, floats as they are.
        y: One label per row: integers for classes, floats for regression.
        test_rows: Row numbers of the official test set, if there is one.
        clients: The natural client of each row, as strings.
        split: The natural split of each row, "train", "val" or "test"; says more than `test_rows`
            and goes before it.
        labels: Class names.
        coarse: A coarse label per row, for two-level partitions.
        normalize: Applied when examples are handed out, never to the arrays.
        classes: Number of classes; None for regression.
    """

    x: NDArray[Any]
    y: NDArray[Any]
    test_rows: NDArray[np.int64] | None = None
    clients: NDArray[Any] | None = None
    split: NDArray[Any] | None = None
    labels: tuple[str, ...] | None = None
    coarse: NDArray[Any] | None = None
    normalize: Normalize | None = None
    classes: int | None = None

    def rows_of(self, split: SplitName) -> NDArray[np.int64]:
        """Row numbers that the data put in `split`; all are training data if they say nothing."""
        if self.split is not None:
            return np.flatnonzero(np.asarray(self.split) == split)
        held = np.zeros(len(self.y), bool)
        if self.test_rows is not None:
            held[self.test_rows] = True
        if split == "val":
            return np.empty(0, np.int64)
        return np.flatnonzero(held if split == "test" else ~held)

    @property
    def has_test(self) -> bool:
        """Whether the data come with a test set of their own."""
        return len(self.rows_of("test")) > 0
