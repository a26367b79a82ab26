"""Table columns as arrays: features, targets and client ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from motet.data.sources.fill import Missing
from motet.errors import DataError, RequestError

Kind = Literal["auto", "classes", "regression"]


class Target(NamedTuple):
    """An encoded target column."""

    y: NDArray[Any]
    classes: int | None
    labels: tuple[str, ...] | None


class Encoded(NamedTuple):
    """A feature column as one or more columns of numbers."""

    block: NDArray[Any]  # [rows, columns]
    names: list[str]
    holes: NDArray[np.bool_]  # [rows]


def to_ids(column: Any, name: str) -> NDArray[Any]:
    """Read client ids as text; every row must have one."""
    values = column.to_pylist()
    if column.null_count:
        raise DataError(f'row {values.index(None)} has no client: column "{name}" is empty there.')
    return np.asarray([str(value) for value in values])


def encode_features(
    table: Any,
    chosen: Sequence[str],
    categorical: Sequence[str],
    ids: NDArray[Any],
    missing: Missing,
) -> tuple[NDArray[np.float32], tuple[str, ...]]:
    """Make the input matrix and the names of its columns; missing numbers are NaN."""
    encoded = [
        (_one_hot if column in categorical else _numeric)(_decoded(table[column]), column)
        for column in chosen
    ]
    for column, found in zip(chosen, encoded, strict=True):
        if missing == "error" and found.holes.any():
            raise _missing_error(column, found.holes, ids)
    x = np.concatenate([found.block for found in encoded], axis=1, dtype=np.float32)
    return x, tuple(name for found in encoded for name in found.names)


def encode_target(column: Any, name: str, kind: Kind) -> Target:
    """Replace classes by numbers, or read numbers for regression."""
    if kind not in ("auto", "classes", "regression"):
        raise RequestError(f'kind must be "auto", "classes" or "regression"; {kind!r} came.')
    column = _decoded(column)
    values = column.to_pylist()
    if column.null_count:
        raise DataError(
            f'row {values.index(None)} has no target: column "{name}" is empty there. Drop the row.'
        )
    if values and isinstance(values[0], dict | list | bytes):
        raise DataError(
            f'column "{name}" holds {column.type} values, which are neither classes nor numbers.'
        )
    is_float = bool(values) and isinstance(values[0], float)
    if kind == "regression" or (kind == "auto" and is_float):
        return Target(_numbers(column, name).astype(np.float32), None, None)
    found, codes = np.unique(np.asarray(values), return_inverse=True)
    # Integers that already count 0, 1, 2, ... need no names.
    counted = found.dtype.kind == "i" and np.array_equal(found, np.arange(len(found)))
    labels = None if counted else tuple(str(value) for value in found.tolist())
    return Target(codes.astype(np.int64), len(found), labels)


def _decoded(column: Any) -> Any:
    """Resolve Parquet's dictionary columns to their values."""
    import pyarrow

    is_dictionary = pyarrow.types.is_dictionary(column.type)
    return column.cast(column.type.value_type) if is_dictionary else column


def _numbers(column: Any, name: str) -> NDArray[np.float64]:
    """Read a column as floats, NaN where it is empty."""
    from pyarrow import float64, types

    kind = column.type
    if types.is_string(kind) or types.is_large_string(kind):
        example = next(value for value in column.to_pylist() if value is not None)
        raise DataError(
            f'column "{name}" holds text ("{example}"). Name it in `categorical` to one-hot encode '
            "it, or list the `features` without it."
        )
    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    if not (is_number or types.is_null(kind) or types.is_decimal(kind)):
        raise DataError(
            f'column "{name}" holds {kind} values; turn them into numbers first, or leave it out.'
        )
    return np.asarray(column.cast(float64()).to_numpy(), np.float64)


def _numeric(column: Any, name: str) -> Encoded:
    """Take a column of numbers as it is; a missing one is NaN."""
    block = _numbers(column, name)
    return Encoded(block[:, None], [name], np.isnan(block))


def _one_hot(column: Any, name: str) -> Encoded:
    """Make a 0/1 column per category; a missing one is all zeros."""
    values = column.to_pylist()
    categories = sorted({value for value in values if value is not None})
    place = {category: number for number, category in enumerate(categories)}
    known = [row for row, value in enumerate(values) if value is not None]
    block = np.zeros((len(values), len(categories)), np.float32)
    block[known, [place[values[row]] for row in known]] = 1
    names = [f"{name}={category}" for category in categories]
    return Encoded(block, names, np.asarray(column.is_null(), bool))


def _missing_error(name: str, holes: NDArray[np.bool_], ids: NDArray[Any]) -> DataError:
    row = int(holes.argmax())
    return DataError(
        f'column "{name}" misses {holes.sum()} of {len(holes)} values, first in row {row} '
        f'(client "{ids[row]}"). Fill them with missing="median" or missing="client-median", '
        "or list the `features` without it."
    )
