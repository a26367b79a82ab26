"""Helpers of all sources: class counts and split names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motet.data._chain import Chain
from motet.data._raw import SPLITS
from motet.data._tables.cells import Cells, RowName
from motet.errors import DataError

_ALIASES = {
    "training": "train",
    "validation": "val",
    "valid": "val",
    "dev": "val",
    "testing": "test",
}


def count_classes(y: Chain, classes: int | None, labels: Sequence[str] | None) -> int | None:
    """Find the number of classes: as given, one per name, or the largest label plus one."""
    if classes is not None:
        return classes
    if labels is not None:
        return len(labels)
    if y.dtype.kind == "f":
        return None
    return 1 + max(int(chunk.max(initial=0)) for _, chunk in y.chunks())


def split_names(values: Iterable[Any]) -> NDArray[Any]:
    """Read a column of train, val and test; common aliases such as "validation" are accepted."""
    written = np.asarray([str(value).strip().lower() for value in values])
    return _known_splits(written, "split", lambda row: f"row {row}")


def split_codes(cells: Cells, column: str, row_name: RowName) -> NDArray[Any]:
    """Read the column of a table that contains train, val and test."""
    texts = np.asarray([*(text.strip().lower() for text in cells.values), ""])
    return _known_splits(texts, column, row_name, cells.codes)


def _known_splits(
    texts: NDArray[Any], column: str, row_name: RowName, codes: NDArray[Any] | None = None
) -> NDArray[Any]:
    names = np.asarray([_ALIASES.get(name, name) for name in texts.tolist()])
    wrong = ~np.isin(names, SPLITS)
    rows = wrong if codes is None else wrong[codes]
    if rows.any():
        row = int(rows.argmax())
        text = texts[row] if codes is None else texts[codes[row]]
        raise DataError(
            f'a split must be train, val or test; {row_name(row)} has "{text}" '
            f'in column "{column}".'
        )
    return names if codes is None else names[codes]
