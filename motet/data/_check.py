"""Checks of a federation before training.

Every error names the client and the row, where there is one, and how to fix it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from motet.data._chain import Chain
from motet.data._convert import is_tokens
from motet.data._raw import SPLITS
from motet.errors import DataError

if TYPE_CHECKING:  # the federation calls these checks, so it cannot be imported here
    from motet.data._federation import Federation

PADDING = (-1, -100)


def check_federation(federation: Federation) -> None:
    """Run every check, the cheap ones first."""
    _check_clients(federation)
    _check_training_data(federation)
    _check_shared_rows(federation)
    _check_normalize(federation)
    _check_targets(federation)
    _check_inputs(federation)


def _check_clients(federation: Federation) -> None:
    if not federation.clients:
        raise DataError(
            f'"{federation.name}" has no clients. Pass at least one with training data.'
        )
    twice = [client for client, times in Counter(federation.clients).items() if times > 1]
    if twice:
        raise DataError(f'client ids must be unique; "{twice[0]}" appears more than once.')


def _check_training_data(federation: Federation) -> None:
    without = np.flatnonzero(federation.rows.sizes[:, 0] == 0)
    if len(without):
        others = f" ({len(without) - 1} others have none either)" if len(without) > 1 else ""
        raise DataError(
            f'client "{federation.clients[without[0]]}" has no training data{others}. '
            "Leave it out, or give it training rows."
        )


def _check_shared_rows(federation: Federation) -> None:
    """Refuse a row that is used twice: test data would leak into training."""
    rows = federation.rows.index
    if any("share" in step for step in federation.recipe.get("steps", ())):
        train, val, test = (federation.rows.clients_of(s)[1] for s in range(len(SPLITS)))
        # Several clients may train on the same row of the shared pool.
        rows = np.concatenate([np.unique(train), val, test])
    used = np.zeros(int(rows.max(initial=-1)) + 1, bool)
    used[rows] = True
    if np.count_nonzero(used) == len(rows):  # the usual case, without sorting
        return
    ordered = np.sort(rows)
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(twice):
        raise DataError(
            f"{_where(federation, int(twice[0]))} belongs to more than one client or split. "
            "Use every row only once."
        )


def _check_normalize(federation: Federation) -> None:
    normalize = federation.normalize
    if normalize is None:
        return
    if is_tokens(federation.x.dtype):
        raise DataError(f"tokens ({federation.x.dtype}) cannot be normalized. Remove `normalize`.")
    channels = federation.shape[0] if federation.shape else 1
    if len(normalize.mean) not in (1, channels):
        raise DataError(
            f"normalize has {len(normalize.mean)} means, but inputs of shape {federation.shape} "
            f"have {channels} channels (the first axis). Give one number per channel, or one."
        )


def _check_targets(federation: Federation) -> None:
    classes, labels = federation.classes, federation.labels
    if labels is not None and len(labels) != classes:
        raise DataError(
            f"expected one class name for each of {classes} classes, got {len(labels)}."
        )
    if classes is None:
        _refuse_rows(
            federation, federation.y, _is_not_finite, "a target that is not a finite number"
        )
        return

    # In a sequence a position without a target has one of these labels.
    padding = PADDING if federation.y.shape else ()

    def is_no_label(y: NDArray[Any]) -> NDArray[np.bool_]:
        wrong = (y < 0) & ~np.isin(y, padding)
        return np.asarray(wrong | (y >= classes) | (y != np.floor(y)))

    _refuse_rows(
        federation,
        federation.y,
        is_no_label,
        f"a label that is not a whole number from 0 to {classes - 1}",
    )


def _check_inputs(federation: Federation) -> None:
    if federation.x.dtype.kind == "f":
        _refuse_rows(federation, federation.x, _is_not_finite, "a NaN or an infinity in x")


def _is_not_finite(values: NDArray[Any]) -> NDArray[np.bool_]:
    return np.asarray(~np.isfinite(values))


def _refuse_rows(
    federation: Federation,
    chain: Chain,
    is_bad: Callable[[NDArray[Any]], NDArray[np.bool_]],
    what: str,
) -> None:
    """Refuse the first bad row that a client uses; the rows are read a few megabytes at a time."""
    for start, chunk in chain.chunks():
        bad = is_bad(chunk).reshape(len(chunk), -1)
        if not bad.any():  # the usual case, and much faster than row by row
            continue
        rows = np.flatnonzero(bad.any(axis=1))
        used = rows[np.isin(start + rows, federation.rows.index)]
        if len(used):
            row = int(used[0])
            value = chunk[row].reshape(-1)[bad[row].argmax()]
            raise DataError(
                f"{_where(federation, start + row)} has {what} ({value}). Fix or remove it."
            )


def _where(federation: Federation, row: int) -> str:
    owner = federation.rows.owner_of(row)
    assert owner is not None
    client, split = owner
    _, local = federation.x.locate(row)
    return f'client "{federation.clients[client]}": row {local} ({SPLITS[split]})'


def as_numbers(values: Any, what: str) -> NDArray[Any]:
    """View numbers, numpy or torch, as an array without copying; refuse text and ragged lists."""
    values = values.detach().cpu().numpy() if hasattr(values, "detach") else values
    if np.ma.is_masked(values):
        missing = int(np.ma.getmaskarray(values).sum())
        raise DataError(
            f"{what} has {missing} masked values. Leave their rows out, or fill them: "
            "`array.filled(...)`."
        )
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise DataError(f"{what} is not one array: {error}.") from None
    if array.dtype.kind not in "biuf":
        remedy = {
            "c": "Give the real and the imaginary part as two features.",
            "M": "Give a number, such as the days since a fixed date.",
            "m": "Give a number, such as the days.",
            "O": 'If they are numbers, give them a type: array.astype("float32").',
        }.get(
            array.dtype.kind,
            "Encode text as numbers first (`motet.data.from_table` does it for tables).",
        )
        raise DataError(f"{what} must hold numbers, got {array.dtype}. {remedy}")
    return array


def check_pair(x: Any, y: Any, who: str) -> None:
    """Refuse inputs and targets of different lengths, or without a row axis."""
    if not x.shape or not y.shape:
        raise DataError(f"{who} needs arrays with one row per example, got a single number.")
    if x.shape[0] != y.shape[0]:
        raise DataError(
            f"{who} has {x.shape[0]} inputs but {y.shape[0]} targets; they must match row by row."
        )
