"""Several targets at once: columns of yes and no, of which any may be true."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from motet.data._columns import Target
from motet.data._tables.cells import (
    Cells,
    MissingValues,
    RowName,
    is_opaque,
    same_spelling,
    to_cells,
)
from motet.data._tables.fixes import fix
from motet.data._tables.options import TableOptions
from motet.data._tables.survival import EVENTS, given_events
from motet.errors import DataError, RequestError


def labels_target(options: TableOptions) -> Target:
    """Make the target of a schema, and refuse options that do not go with several targets."""
    listed = " and ".join(f'"{name}"' for name in options.targets)
    if len(set(options.targets)) < len(options.targets):
        raise RequestError(f"a target is named twice: {listed}.")
    if options.kind != "auto" or options.event is not None:
        option = "kind" if options.event is None else "event"
        raise RequestError(
            f"with several targets ({listed}) each is a column of yes and no, so {option} does not "
            f"apply. Leave out --{option}, or all targets but one."
        )
    wrong = [label for label in options.labels.values() if same_spelling(label) not in EVENTS]
    if wrong:
        raise RequestError(
            "with several targets, labels say which texts are 1 (yes) or 0 (no), such as --label "
            f'ill=1; got the label "{wrong[0]}".'
        )
    return Target(
        name=options.target, kind="labels", labels=options.targets, mapping=dict(options.labels)
    )


def read_labels(
    target: Target, table: Any, missing: MissingValues, row_name: RowName
) -> NDArray[np.float32]:
    """Read 0 or 1 of each label, [rows, labels]; NaN in all of them where one is missing."""
    known = EVENTS | given_events(target.mapping)
    y = np.stack([_answers(name, table[name], missing, known, row_name) for name in target.labels])
    y[:, np.isnan(y).any(axis=0)] = np.nan
    return np.ascontiguousarray(y.T, np.float32)


def _answers(
    name: str, column: Any, missing: MissingValues, known: dict[str, float], row_name: RowName
) -> NDArray[np.float64]:
    if is_opaque(column):
        raise DataError(
            f'the target "{name}" should hold 1 (yes) or 0 (no), got {column.type}. Name another '
            f"target with {fix('target', 'COLUMN')}."
        )
    cells: Cells = to_cells(column, missing)
    for code, text in enumerate(cells.values):
        if same_spelling(text) not in known:
            raise DataError(
                f'the target "{name}" should hold 1 (yes) or 0 (no), since there are several '
                f'targets; {row_name(cells.first(code))} has "{text}". Say what it means with '
                f"{fix('labels', f'{text}=1')} or {fix('labels', f'{text}=0')}."
            )
    return cells.look_up([known[same_spelling(text)] for text in cells.values])
