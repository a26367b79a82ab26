"""`Raw`, a data set before it is divided among clients, and `Normalize`, its input scaling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from motet.errors import RequestError

SplitName = Literal["train", "val", "test"]
Precision = Literal["float32", "float64"]
SPLITS: tuple[SplitName, ...] = ("train", "val", "test")


@dataclass(frozen=True)
class Normalize:
    """An affine map `(x - mean) / std`, with one number for all channels or one per channel.

    Channels are the first axis of an input. uint8 images are scaled to [0, 1] first, so that
    published means and standard deviations can be used.

    Attributes:
        mean: One number, or one per channel.
        std: The same number of standard deviations, all above 0.

    Example:
        >>> Normalize(mean=(0.5,), std=(0.25,)).std
        (0.25,)
        >>> Normalize(mean=(0.5,), std=(0.0,))
        Traceback (most recent call last):
            ...
        motet.errors.RequestError: every std must be above 0, got (0.0,).
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std) or not self.mean:
            raise RequestError(
                f"normalize needs one mean and one std per channel, "
                f"got {len(self.mean)} means and {len(self.std)} standard deviations."
            )
        if min(self.std) <= 0:
            raise RequestError(f"every std must be above 0, got {self.std}.")


@dataclass(frozen=True)
class Raw:
    """A data set before it is divided among clients.

    Attributes:
        x: One row per example, channels first; may be a memory map. uint8 is read as an image
            (divided by 255), any other integer type as tokens, floats as they are.
        y: One label per row: integers for classes, floats for regression.
        test_rows: Row numbers of the official test set, if there is one.
        clients: The natural client of each row, as strings.
        split: The natural split of each row, "train", "val" or "test"; takes precedence over
            `test_rows`.
        labels: Class names.
        coarse: A coarse label per row, for two-level partitions.
        normalize: Applied when examples are read; the arrays are not changed.
        classes: Number of classes; None for regression.
        survival: Whether targets are (time, event).

    Example:
        >>> import numpy as np
        >>> raw = Raw(np.zeros((4, 2)), np.array([0, 1, 1, 0]), test_rows=np.array([3]), classes=2)
        >>> raw.rows_of("train").tolist()
        [0, 1, 2]
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
    survival: bool = False

    def rows_of(self, split: SplitName) -> NDArray[np.int64]:
        """Return the rows of the data's own `split`; without one, all rows are training data."""
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
        """Whether the data have an official test set."""
        return len(self.rows_of("test")) > 0
