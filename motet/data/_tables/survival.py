"""Survival targets: a column of times, and one that says whether the event happened then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motet.data._columns import Target
from motet.data._tables.cells import (
    Cells,
    MissingValues,
    RowName,
    is_numeric,
    numbers_of,
    numeric_values,
    plain,
    same_spelling,
    to_cells,
)
from motet.data._tables.fixes import fix, fixes
from motet.data._tables.options import TableOptions
from motet.errors import DataError, RequestError

HAPPENED = ("1", "true", "yes", "y", "event", "dead", "died")
CENSORED = ("0", "false", "no", "n", "censored", "alive")
Floats = NDArray[np.float32]


def survival_target(options: TableOptions) -> Target:
    """Make the target of a schema, and refuse options that do not go with survival."""
    assert options.event is not None
    if options.kind != "auto":
        raise RequestError(
            f"event makes the target a time to an event, so kind={options.kind!r} does not apply. "
            "Leave out --kind, or --event."
        )
    if options.event == options.target:
        raise RequestError(
            f'target and event name the same column "{options.event}". The target is the column '
            "of times, the event the column of 0 and 1."
        )
    wrong = [label for label in options.labels.values() if same_spelling(label) not in EVENTS]
    if wrong:
        raise RequestError(
            f'with event, labels say which texts of column "{options.event}" are 1 (it happened) '
            f'or 0 (censored), such as --label dead=1; got the label "{wrong[0]}".'
        )
    return Target(
        name=options.target,
        kind="survival",
        event=options.event,
        mapping=dict(options.labels),
        unit=options.units.get(options.target),
    )


EVENTS = dict.fromkeys(HAPPENED, 1.0) | dict.fromkeys(CENSORED, 0.0)


def read_survival(
    target: Target, table: Any, missing: MissingValues, decimal: str, row_name: RowName
) -> Floats:
    """Read (time, event) of each row; NaN where one of them is missing."""
    assert target.event is not None
    times = _times(target, plain(table[target.name]), missing, decimal, row_name)
    events = _events(target, to_cells(table[target.event], missing), row_name)
    y = np.stack([times, events], axis=1)
    y[np.isnan(y).any(axis=1)] = np.nan
    return y.astype(np.float32)


def _times(
    target: Target, column: Any, missing: MissingValues, decimal: str, row_name: RowName
) -> NDArray[np.float64]:
    name = target.name
    if is_numeric(column):
        times = numeric_values(column, missing)
    else:
        cells = to_cells(column, missing)
        numbers, wrong = numbers_of(cells, decimal, target.unit)
        if wrong:
            raise _unusable(name, cells.values[wrong[0]], row_name(cells.first(wrong[0])))
        times = cells.look_up(numbers)
    bad = (times < 0) | np.isinf(times)
    if bad.any():
        row = int(bad.argmax())
        raise _unusable(name, f"{times[row]:g}", row_name(row))
    return times


def _unusable(name: str, text: str, row: str) -> DataError:
    return DataError(
        f'the time "{name}" should be a number of 0 or more; {row} has "{text}". Correct it, or '
        f"leave such rows out with {fixes(('na', text), ('drop_missing_target', True))}."
    )


def _events(target: Target, cells: Cells, row_name: RowName) -> NDArray[np.float64]:
    known = EVENTS | given_events(target.mapping)
    for code, text in enumerate(cells.values):
        if same_spelling(text) not in known:
            raise DataError(
                f'column "{target.event}" should say whether the event happened (1) or not (0); '
                f'{row_name(cells.first(code))} has "{text}". Say what it means with '
                f"{fix('labels', f'{text}=1')} or {fix('labels', f'{text}=0')}."
            )
    return cells.look_up([known[same_spelling(text)] for text in cells.values])


def given_events(mapping: Mapping[str, str]) -> dict[str, float]:
    """Read which texts a user calls 1 and 0."""
    return {same_spelling(text): EVENTS[same_spelling(label)] for text, label in mapping.items()}
