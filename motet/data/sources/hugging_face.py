"""Federations from a Hugging Face `datasets.Dataset` or `DatasetDict`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motet.data.check import as_numbers
from motet.data.federation import Federation
from motet.data.sources.common import split_names
from motet.data.sources.rows import from_rows
from motet.data.split import Split
from motet.errors import DataError, RequestError, nearest


def from_hf(
    dataset: Any,
    *,
    client: str,
    input: str,  # noqa: A002  # the word users of the hub know
    target: str,
    split: Split | str | None = None,
    name: str = "hugging-face",
    **options: Any,
) -> Federation:
    """Make a federation of a Hugging Face data set with a column that names the client.

    Images become arrays with channels first. Class names are taken from a `ClassLabel` target.

    Args:
        dataset: A `datasets.Dataset`; or a `DatasetDict`, whose own train, validation and test are
            then kept.
        client: Column that names the client of each row.
        input: Column with the inputs: images, vectors or token lists of one length.
        target: Column to predict.
        split: How each client's rows are cut (default: `Split()`), or the column that says train,
            val or test.
        name: What to call the data.
        options: As for `from_rows`: seed, classes, labels, normalize.
    """
    parts = dict(dataset) if isinstance(dataset, Mapping) else {"": dataset}
    wanted = [client, input, target, *([split] if isinstance(split, str) else [])]
    for part in parts.values():
        _require(part, wanted)
    columns = {column: _joined(parts, column) for column in wanted}
    first = next(iter(parts.values()))
    labels = getattr(first.features[target], "names", None)
    options = {"labels": labels, **options}
    cut: Any = columns[split] if isinstance(split, str) else split
    if isinstance(dataset, Mapping) and split is None:
        cut = split_names(key for key, part in parts.items() for _ in range(len(part)))
    x = as_numbers(columns[input], f'column "{input}"')
    if getattr(first.features[input], "dtype", None) == "uint8":
        x = x.astype(
            np.uint8
        )  # numpy formatting widens integers, which would make tokens of pixels
    x = _channels_first(x)
    source = {"from": "hugging-face", "client": client, "input": input, "target": target}
    return from_rows(
        x, columns[target], columns[client], split=cut, name=name, source=source, **options
    )


def _require(part: Any, columns: list[str]) -> None:
    for column in columns:
        if column not in part.column_names:
            raise RequestError(
                f'the data set has no column "{column}"; {nearest(column, part.column_names)}'
            )


def _joined(parts: Mapping[str, Any], column: str) -> NDArray[Any]:
    blocks = [
        np.asarray(part.with_format("numpy", columns=[column])[:][column])
        for part in parts.values()
    ]
    if any(block.dtype == object for block in blocks):
        raise DataError(
            f'column "{column}" has rows of different shapes; bring them to one shape first.'
        )
    return np.concatenate(blocks)


def _channels_first(x: NDArray[Any]) -> NDArray[Any]:
    """Turn images [rows, height, width(, channels)] into [rows, channels, height, width]."""
    if x.dtype != np.uint8 or x.ndim not in (3, 4):
        return x
    return x[:, None] if x.ndim == 3 else np.moveaxis(x, -1, 1)
