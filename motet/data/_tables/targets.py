"""The target column: classes by name, or numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from motet._core.text import plural
from motet.data._columns import Target
from motet.data._tables.blocks import LARGEST
from motet.data._tables.cells import (
    Cells,
    MissingValues,
    RowName,
    exact_spelling,
    is_numeric,
    is_opaque,
    numbers_of,
    numeric_values,
    plain,
    same_spelling,
    to_cells,
)
from motet.data._tables.fixes import fix, fixes
from motet.data._tables.multi_label import labels_target, read_labels
from motet.data._tables.options import TableOptions
from motet.data._tables.spellings import in_order, merged
from motet.data._tables.survival import read_survival, survival_target
from motet.errors import DataError, RequestError

MANY_CLASSES = 50
FEW_VALUES = 10


class Answer(NamedTuple):
    """An encoded target column.

    Attributes:
        y: Class numbers or values; -1 or NaN where the target is missing.
        classes: Number of classes; None for regression.
        labels: Class names; None if they are 0, 1, 2, ...
        target: For the schema.
        remarks: What the owner of the data should know.
    """

    y: NDArray[Any]
    classes: int | None
    labels: tuple[str, ...] | None
    target: Target
    remarks: tuple[str, ...] = ()

    @property
    def holes(self) -> NDArray[np.bool_]:
        """Whether the target is missing, for each row."""
        if self.y.ndim == 2:
            return np.asarray(np.isnan(self.y).any(axis=1))
        return np.asarray(np.isnan(self.y) if self.classes is None else self.y < 0)


def read_target(table: Any, options: TableOptions, row_name: RowName) -> Answer:
    """Read the column to predict, or the two of a survival target."""
    name, kind = options.target, options.kind
    if options.event is not None and not options.more_targets:
        survival, missing = survival_target(options), MissingValues(options.na)
        y = read_survival(survival, table, missing, options.decimal, row_name)
        return Answer(y, None, None, survival)
    if options.more_targets:
        several = labels_target(options)
        y = read_labels(several, table, MissingValues(options.na), row_name)
        return Answer(y, None, None, several)
    column = table[name]
    if kind not in ("auto", "classes", "regression"):
        raise RequestError(
            f'kind must be "auto", "classes" or "regression", got {kind!r}.', option="kind"
        )
    column = plain(column)
    from pyarrow import types

    if is_opaque(column):
        raise DataError(
            f'column "{name}" holds {column.type} values, which are neither classes nor numbers. '
            f"Name another target with {fix('target', 'COLUMN')}."
        )
    missing = MissingValues(options.na)
    is_float = types.is_floating(column.type) or types.is_decimal(column.type)
    if kind == "regression" or (kind == "auto" and is_float and not options.labels):
        return _regression(column, options, missing, row_name)
    return _classes(column, options, missing, row_name)


def _regression(
    column: Any, options: TableOptions, missing: MissingValues, row_name: RowName
) -> Answer:
    name = options.target
    if is_numeric(column):
        y = numeric_values(column, missing)
    else:
        cells = to_cells(column, missing)
        numbers, wrong = numbers_of(cells, options.decimal)
        if wrong:
            text = cells.values[wrong[0]]
            raise DataError(
                f'the target "{name}" should hold numbers; {row_name(cells.first(wrong[0]))} has '
                f'"{text}". Treat it as missing with {fix("na", text)}, or predict classes with '
                f"{fix('kind', 'classes')}."
            )
        y = cells.look_up(numbers)
    huge = np.abs(y) > LARGEST
    if huge.any():
        row = int(huge.argmax())
        raise DataError(
            f'the target "{name}" should hold finite numbers; {row_name(row)} has '
            f"{y[row]}. Correct it, or leave such rows out with "
            f"{fixes(('na', str(y[row])), ('drop_missing_target', True))}."
        )
    target = Target(name=name, kind="regression", unit=options.units.get(name))
    return Answer(y.astype(np.float32), None, None, target, _doubt_values(y, options))


def _doubt_values(y: NDArray[np.float64], options: TableOptions) -> tuple[str, ...]:
    known = np.unique(y[~np.isnan(y)])
    few = len(known) <= FEW_VALUES and np.array_equal(known, np.round(known))
    if options.kind != "auto" or not few or len(y) < 2 * FEW_VALUES:
        return ()
    return (
        f'the target "{options.target}" has {plural(len(known), "value")}, all whole numbers, and '
        f"is predicted as a number; to predict classes, use {fix('kind', 'classes')}.",
    )


def _classes(
    column: Any, options: TableOptions, missing: MissingValues, row_name: RowName
) -> Answer:
    name, remarks = options.target, []
    found = merged(_spelled(column, missing), ignore_case=options.merge_spellings)
    cells = found.cells
    if options.labels:
        cells, labels = _mapped(cells, options, row_name)
    else:
        labels = tuple(in_order(list(cells.values)))
    remark = found.remark(f'the target "{name}"')
    remarks += [remark] if remark else []
    # Integers that are already 0, 1, 2, ... need no names.
    from pyarrow import types

    counted = types.is_integer(column.type) and labels == tuple(map(str, range(len(labels))))
    if len(labels) > MANY_CLASSES and options.kind == "auto":
        remarks.append(
            f'the target "{name}" has {len(labels)} classes; to predict a number, use '
            f"{fix('kind', 'regression')}."
        )
    target = Target(
        name=name, kind="classes", labels=labels or ("0",), mapping=dict(options.labels)
    )
    y = cells.codes.astype(np.int64)
    return Answer(y, max(len(labels), 1), None if counted else labels, target, tuple(remarks))


def _spelled(column: Any, missing: MissingValues) -> Cells:
    """Read classes as text; numbers with a point keep it."""
    from pyarrow import types

    if not types.is_floating(column.type):
        return to_cells(column, missing)
    values, inverse = np.unique(numeric_values(column, missing), return_inverse=True)
    known = ~np.isnan(values)
    codes = np.where(known[inverse], inverse, -1).astype(np.int32)
    return Cells(codes, tuple(str(value) for value in values[known].tolist()))


def _mapped(
    cells: Cells, options: TableOptions, row_name: RowName
) -> tuple[Cells, tuple[str, ...]]:
    """Replace spellings by the labels that the user gave them; classes are in that order."""
    key = same_spelling if options.merge_spellings else exact_spelling
    mapping = {key(text): label for text, label in options.labels.items()}
    labels = tuple(dict.fromkeys(options.labels.values()))
    mapping |= {key(label): label for label in labels if key(label) not in mapping}
    for code, text in enumerate(cells.values):
        if key(text) not in mapping:
            raise DataError(
                f'the target "{options.target}" has "{text}" in {row_name(cells.first(code))}, '
                f"which has no label. Give it one with {fix('labels', f'{text}={labels[0]}')}, or "
                f"treat it as missing with {fix('na', text)}."
            )
    place = {label: number for number, label in enumerate(labels)}
    table = np.asarray([*(place[mapping[key(text)]] for text in cells.values), -1], np.int32)
    return Cells(table[cells.codes], labels), labels
