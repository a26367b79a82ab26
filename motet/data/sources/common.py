"""What all sources need: class counts and the names of splits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motet.data.chain import Chain
from motet.data.raw import SPLITS
from motet.errors import DataError

_ALIASES = {
    "training": "train",
    "validation": "val",
    "valid": "val",
    "dev": "val",
    "testing": "test",
}


def count_classes(y: Chain, classes: int | None, labels: Sequence[str] | None) -> int | None:
    """Find the number of classes: as stated, one per name, or the largest label plus one."""
    if classes is not None:
        return classes
    if labels is not None:
        return len(labels)
    if y.dtype.kind == "f":
        return None
    return 1 + max(int(chunk.max(initial=0)) for _, chunk in y.chunks())


def split_names(values: Iterable[Any]) -> NDArray[Any]:
    """Read a column that says train, val or test; the usual other spellings are understood."""
    written = np.asarray([str(value).strip().lower() for value in values])
    known = np.asarray([_ALIASES.get(name, name) for name in written])
    wrong = ~np.isin(known, SPLITS)
    if wrong.any():
        row = int(wrong.argmax())
        raise DataError(f'a split must be train, val or test; row {row} says "{written[row]}".')
    return known
