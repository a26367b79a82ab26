"""Predictions for a file of rows, by one model or by the model of the site that each row names."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from motet._core.text import plural
from motet._export.opening import open_model, sites_in
from motet._export.predictors import read_about, schema_in
from motet._export.reading import Rows, read_rows, with_na
from motet._export.rows import Predictions, kept_columns, needs_schema, predict_table
from motet.data import Schema
from motet.data._tables.cells import MissingValues, same_spelling, to_cells
from motet.errors import DataError, RequestError, nearest


class Predicted(NamedTuple):
    """A table of predictions, and what was repaired or noticed."""

    table: Any
    remarks: tuple[str, ...]

    def to_list(self) -> list[dict[str, Any]]:
        """Return the rows as JSON values."""
        plain = str | int | float | bool | None
        return [
            {name: value if isinstance(value, plain) else str(value) for name, value in row.items()}
            for row in self.table.to_pylist()
        ]


def predict_file(
    model: Path,
    source: Any,
    *,
    site: str | None = None,
    keep: Sequence[str] = (),
    na: Sequence[str] = (),
    strict: bool = False,
    **reading: Any,
) -> Predicted:
    """Predict all rows of a file.

    Args:
        model: An export, or a directory of exports.
        source: The rows: a path, or whatever `read_rows` takes.
        site: The site whose model is used; None uses that of the site each row names.
        keep: Columns of the rows to put beside the predictions.
        na: Texts that mean a missing value, besides those of training.
        strict: Whether rows that need a repair are refused.
        **reading: How the file is written, as for `read_rows`.
    """
    if model.is_dir() and site is None and len(sites_in(model)) > 1:
        return _by_site(model, source, keep=keep, na=na, strict=strict, **reading)
    opened, schema = open_model(model, site)
    schema = with_na(schema, na)
    rows = read_rows(source, schema, **reading)
    found = predict_table(opened.predict, schema, opened.about["client"], rows, strict=strict)
    return Predicted(found.to_table(kept_columns(rows.table, keep, found.labels)), found.remarks)


def _by_site(
    directory: Path,
    source: Any,
    *,
    keep: Sequence[str],
    na: Sequence[str],
    strict: bool,
    **reading: Any,
) -> Predicted:
    """Predict each row with the model of its site."""
    models = sites_in(directory)
    first = next(iter(models.values()))
    schema = with_na(needs_schema(schema_in(read_about(first)), first), na)
    rows = read_rows(source, schema, **reading)
    if strict:
        rows.refuse_left_out()
    groups = _groups(schema, rows, models)
    parts: list[tuple[Any, Predictions]] = []
    for name, places in groups.items():
        opened, own = open_model(models[name])
        part = Rows(rows.table.take(places), partial(_name_of, rows, places))
        own = with_na(own, na)
        parts.append((places, predict_table(opened.predict, own, name, part, strict=strict)))
    joined = _joined(schema, len(rows.table), parts)
    remarks = [
        f"{name}: {r}" for name, (_, p) in zip(groups, parts, strict=True) for r in p.remarks
    ]
    table = joined.to_table(kept_columns(rows.table, keep, joined.labels))
    return Predicted(table, (*rows.remarks, *remarks))


def _name_of(rows: Rows, places: NDArray[np.int64], row: int) -> str:
    """Name a row of a part as the whole table does."""
    return rows.row_name(int(places[row]))


def _groups(schema: Schema, rows: Rows, models: dict[str, Path]) -> dict[str, Any]:
    """Find the rows of each site; every row must name a site with a model."""
    if schema.client is None or schema.client not in rows.table.column_names:
        raise RequestError(
            f"the rows do not name their site (column {schema.client!r}), and there are models of "
            f"{plural(len(models), 'site')}. Name one with --site, such as "
            f'--site "{next(iter(models))}".'
        )
    cells = to_cells(rows.table[schema.client], MissingValues(schema.na))
    if (cells.codes < 0).any():
        row = rows.row_name(int((cells.codes < 0).argmax()))
        raise DataError(f'column "{schema.client}" names no site in {row}. Name one with --site.')
    known = {same_spelling(name): name for name in models}
    groups: dict[str, list[Any]] = {}
    for code, text in enumerate(cells.values):
        name = models and (text if text in models else known.get(same_spelling(text)))
        if not name:
            raise RequestError(
                f'there is no model for the site "{text}" in {rows.row_name(cells.first(code))}; '
                f"{nearest(text, models)}. Use the model of another site for all rows with --site."
            )
        groups.setdefault(name, []).append(np.flatnonzero(cells.codes == code))
    return {name: np.sort(np.concatenate(found)) for name, found in groups.items()}


def _joined(schema: Schema, rows: int, parts: Sequence[tuple[Any, Predictions]]) -> Predictions:
    """Put the predictions of all sites back into the order of the rows."""
    outputs, kind = schema.target.labels, schema.target.kind
    values = np.zeros((rows,) if kind == "regression" else (rows, len(outputs)))
    remarks: list[tuple[str, ...]] = [()] * rows
    for places, found in parts:
        values[places] = found.values
        for place, remark in zip(places.tolist(), found.row_remarks, strict=True):
            remarks[place] = remark
    labels = outputs if kind in ("classes", "labels") else None
    times = outputs if kind == "survival" else None
    return Predictions(values, labels, (), tuple(remarks), times, together=kind == "labels")
