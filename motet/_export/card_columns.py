"""The columns of a schema in plain words, for model cards and pages of sites."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from motet._export.markdown import code, table
from motet.data import Column, Schema

MOST = 30  # categories that are listed
WHAT = {
    "number": "number",
    "categorical": "category",
    "ordinal": "ordered category",
    "date": "date",
}


def columns_table(schema: Schema) -> str:
    """Write a table of the columns that rows must have: kind, values, and what a gap becomes."""
    head = ("column", "kind", "unit", "values", "a missing value")
    return table(head, [tuple(_cells(column, fill)) for column, fill in _fills(schema)])


def target_text(schema: Schema) -> str:
    """Say what is predicted."""
    target = schema.target
    unit = f" in {code(target.unit)}" if target.unit else ""
    if target.kind == "survival":
        return (
            f"{code(target.name)}, a time{unit} until the event that {code(target.event or '')} "
            "marks; probabilities of surviving until each of some times"
        )
    if target.kind == "regression":
        return f"{code(target.name)}, a number{unit}"
    if target.kind == "labels":
        return f"whether each of these is true: {listing(target.labels)}"
    return f"{code(target.name)}: {listing(target.labels)}"


def listing(names: Sequence[str]) -> str:
    """List names from the data, the first ones of very many."""
    rest = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return ", ".join(code(name) for name in names[:MOST]) + rest


def _fills(schema: Schema) -> Iterator[tuple[Column, float | None]]:
    place = 0
    for column in schema.columns:
        yield column, None if schema.fills is None else schema.fills[place]
        place += len(column.features)


def _cells(column: Column, fill: float | None) -> Iterator[str]:
    yield code(column.name)
    yield WHAT[column.kind]
    yield code(column.unit) if column.unit else ""
    yield _values(column)
    yield _missing(column, fill)


def _values(column: Column) -> str:
    if column.kind == "number":
        if column.low is None or column.high is None:
            return "any"
        return f"{column.low:g} to {column.high:g} in training"
    if column.kind == "date":
        written = code(column.format) if column.format else "YYYY-MM-DD"
        return f"{written}; used: {', '.join(column.parts).replace('_', ' ')}"
    others = "; all others count as one" if column.other else ""
    return f"{listing(column.categories)}{others}"


def _missing(column: Column, fill: float | None) -> str:
    if fill is None:
        return "is refused"
    noted = ", and is noted as missing" if column.indicator else ""
    if column.kind == "categorical":
        return f"counts as none of them{noted}"
    if column.kind == "date":
        return f"becomes a usual date{noted}"
    if column.kind == "ordinal":
        place = min(max(round(fill), 0), len(column.categories) - 1)
        return f"becomes about {code(column.categories[place])}{noted}"
    return f"becomes {fill:.6g}{noted}"
