"""Consistency of a schema: names, lengths and numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING

from motet.data._columns import Column, Scaling
from motet.data._tables.cells import exact_spelling, same_spelling
from motet.errors import RequestError

if TYPE_CHECKING:  # a schema checks itself, so it cannot be imported here
    from motet.data._schema import Schema


def check_schema(schema: Schema) -> None:
    """Refuse a schema that contradicts itself."""
    if not schema.columns:
        raise RequestError("a schema needs at least one column to predict from; got none.")
    _once([column.name for column in schema.columns], "columns")
    for column in schema.columns:
        _check_column(schema, column)
    if (schema.target.kind == "survival") != (schema.target.event is not None):
        raise RequestError(
            f'the target "{schema.target.name}" is of kind "{schema.target.kind}"; survival, and '
            f"nothing else, needs a column of events. Got {schema.target.event!r}."
        )
    for name in schema.target.columns:
        if name in {column.name for column in schema.columns}:
            what = "event" if name == schema.target.event else "target"
            raise RequestError(f'the {what} "{name}" cannot be an input column as well.')
    if schema.target.kind in ("classes", "labels") and len(schema.target.labels) < 1:
        raise RequestError(f'the target "{schema.target.name}" needs the names of its classes.')
    _once(schema.target.labels, "labels of the target")
    if len(schema.decimal) != 1 or schema.decimal not in ".,":
        raise RequestError(f'decimal must be "." or ",", got {schema.decimal!r}.')
    _check_statistics(schema)


def _check_column(schema: Schema, column: Column) -> None:
    what = f'column "{column.name}" of the schema'
    if (column.kind in ("categorical", "ordinal")) != bool(column.categories):
        raise RequestError(
            f'{what} is of kind "{column.kind}", and has {len(column.categories)} categories.'
        )
    key = same_spelling if schema.merge_spellings else exact_spelling
    _once([key(text) for text in column.categories], f"categories of {what}")
    if (column.kind == "date") != bool(column.parts):
        raise RequestError(f'{what} is of kind "{column.kind}", and has parts {column.parts}.')
    _once(column.parts, f"parts of {what}")
    if "age" in column.parts and column.reference is None:
        raise RequestError(f'{what} needs a reference date for "age".')
    if column.reference is not None:
        try:
            date.fromisoformat(column.reference)
        except ValueError:
            raise RequestError(
                f"{what} needs an ISO 8601 date as reference, got {column.reference!r}."
            ) from None
    for name in ("low", "high"):
        value = getattr(column, name)
        if value is not None and not math.isfinite(value):
            raise RequestError(f"{what}: {name} must be a finite number, got {value}.")


def _check_statistics(schema: Schema) -> None:
    wanted = len(schema.feature_names)
    fills = [
        ("fills", schema.fills),
        *((f'fills of "{s}"', f) for s, f in schema.site_fills.items()),
    ]
    for what, values in fills:
        if values is not None:
            _check_numbers(values, wanted, what)
    scales = [
        ("scaling", schema.scaling),
        *((f'scaling of "{s}"', f) for s, f in schema.site_scaling.items()),
    ]
    for what, scaling in scales:
        if scaling is not None:
            _check_scaling(scaling, wanted, what)


def _check_scaling(scaling: Scaling, wanted: int, what: str) -> None:
    _check_numbers(scaling.mean, wanted, f"{what} (mean)")
    _check_numbers(scaling.deviation, wanted, f"{what} (deviation)")
    if min(scaling.deviation) <= 0:
        raise RequestError(f"{what}: deviations must be above 0, got {min(scaling.deviation)}.")


def _check_numbers(values: Sequence[float], wanted: int, what: str) -> None:
    if len(values) != wanted:
        raise RequestError(
            f"{what} of a schema: expected one number for each of {wanted} inputs, "
            f"got {len(values)}."
        )
    if not all(map(math.isfinite, values)):
        wrong = next(value for value in values if not math.isfinite(value))
        raise RequestError(f"{what} of a schema must be finite numbers, got {wrong}.")


def _once(names: Sequence[str], what: str) -> None:
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise RequestError(f'{what} must differ from each other; "{twice[0]}" appears twice.')
