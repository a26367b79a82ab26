"""Federations from a Hugging Face `datasets.Dataset` or `DatasetDict`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motet.data._check import as_numbers
from motet.data._federation import Federation
from motet.data._sources.common import split_names
from motet.data._sources.rows import from_rows
from motet.data._split import Split
from motet.errors import DataError, RequestError, nearest


def from_hf(
    dataset: Any,
    *,
    client: str,
    input: str,  # noqa: A002  # the term that users of the hub know
    target: str,
    split: Split | str | None = None,
    name: str = "hugging-face",
    **options: Any,
) -> Federation:
    """Make a federation of a Hugging Face data set with a column that names the client.

    Images become arrays with channels first. Class names are taken from a `ClassLabel` target.

    Args:
        dataset: A `datasets.Dataset`; or a `DatasetDict`, whose train, validation and test splits
            are then kept.
        client: Column that names the client of each row.
        input: Column with the inputs: images, vectors or token lists of one length.
        target: Column to predict.
        split: How each client's rows are cut (default: `Split()`), or the column that contains
            train, val or test.
        name: Name of the data.
        options: As for `from_rows`: seed, classes, labels, normalize.

    Returns:
        The federation.

    Raises:
        RequestError: It is not such a data set, or a column is missing.
        DataError: Rows that cannot be used.

    Example:
        >>> import datasets  # doctest: +SKIP
        >>> femnist = datasets.load_dataset("flwrlabs/femnist")  # doctest: +SKIP
        >>> columns = {"client": "writer_id", "input": "image", "target": "character"}
        >>> from_hf(femnist, **columns)  # doctest: +SKIP
        >>> from_hf([1, 2], **columns)
        Traceback (most recent call last):
            ...
        motet.errors.RequestError: from_hf expects a datasets.Dataset or DatasetDict; got a ...
    """
    parts = dict(dataset) if isinstance(dataset, Mapping) else {"": dataset}
    wanted = [client, input, target, *([split] if isinstance(split, str) else [])]
    for part in parts.values():
        _require_dataset(part)
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
        # numpy formatting widens integers, which would turn pixels into tokens
        x = x.astype(np.uint8)
    x = _channels_first(x)
    source = {"from": "hugging-face", "client": client, "input": input, "target": target}
    return from_rows(
        x, columns[target], columns[client], split=cut, name=name, source=source, **options
    )


def _require_dataset(part: Any) -> None:
    if not all(hasattr(part, name) for name in ("column_names", "features", "with_format")):
        raise RequestError(
            f"from_hf expects a datasets.Dataset or DatasetDict; got a {type(part).__name__}. Load "
            "one with `datasets.load_dataset` (pip install 'motet[hf]'), or use from_rows for "
            "arrays and from_table for frames."
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
            f'column "{column}" has rows of different shapes; convert them to one shape first.'
        )
    return np.concatenate(blocks)


def _channels_first(x: NDArray[Any]) -> NDArray[Any]:
    """Turn images [rows, height, width(, channels)] into [rows, channels, height, width]."""
    if x.dtype != np.uint8 or x.ndim not in (3, 4):
        return x
    return x[:, None] if x.ndim == 3 else np.moveaxis(x, -1, 1)
