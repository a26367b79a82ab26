"""Predictions for raw rows of a table, by the schema that travels with an exported model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from motet._core.atomic import writing_atomically
from motet._core.text import plural
from motet._export.reading import Rows
from motet.data import Encoded, Remark, Schema
from motet.data._tables.blocks import Noticed, read_block
from motet.data._tables.cells import MissingValues, same_spelling, to_cells
from motet.errors import CapabilityError, DataError, RequestError, StateError, nearest

FILES = (".csv", ".tsv", ".parquet")
AT_ONCE = 4096  # rows that are predicted at once
OWN = ("row", "prediction", "remarks")  # columns of a table of predictions
Values = NDArray[np.float64]


class Note(NamedTuple):
    """Something that was repaired or noticed: a sentence, the rows, and a few words for each."""

    sentence: str
    rows: Sequence[int]
    short: str


@dataclass(frozen=True)
class Predictions:
    """Predictions for rows of a table.

    Attributes:
        values: Probabilities, [rows, classes] or [rows, labels], predicted values, [rows], or
            survival curves, [rows, times].
        labels: Names of classes or labels, in the order of the probabilities; None if there are
            none.
        remarks: What was repaired or noticed, a sentence each, with the number of rows.
        row_remarks: The same for each row, in a few words.
        times: For survival, the times at which the curves are given; None otherwise.
        together: Whether any number of labels may be true of a row, rather than one class.
    """

    values: Values
    labels: tuple[str, ...] | None
    remarks: tuple[str, ...] = ()
    row_remarks: tuple[tuple[str, ...], ...] = ()
    times: tuple[str, ...] | None = None
    together: bool = False

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def best(self) -> list[Any]:
        """The label with the largest probability, or the value, of each row.

        Of several targets, all with a probability of one half or more, separated by semicolons.
        For survival, the mean time until the event or until the last time, whichever is earlier.
        """
        if self.times is not None:
            ends = np.concatenate([[0.0], [float(time) for time in self.times]])
            alive = np.concatenate([np.ones((len(self), 1)), self.values], axis=1)
            area = (np.diff(ends) * (alive[:, 1:] + alive[:, :-1]) / 2).sum(axis=1)
            return list(area.tolist())
        if self.labels is None:
            return list(self.values.tolist())
        if self.together:
            return ["; ".join(names) for names in self.true_labels]
        return [self.labels[place] for place in self.values.argmax(axis=1)]

    @property
    def true_labels(self) -> list[list[str]]:
        """The labels with a probability of one half or more, of each row."""
        names = self.labels or ()
        return [
            [name for name, share in zip(names, row, strict=True) if share >= 0.5]
            for row in self.values.tolist()
        ]

    def to_table(self, kept: Mapping[str, Any] | None = None) -> Any:
        """Return a `pyarrow.Table` with a row for each row of the input, in the same order.

        Args:
            kept: Columns of the input to put beside the predictions, by name.
        """
        import pyarrow as pa

        columns = {"row": pa.array(range(1, len(self) + 1), pa.int64()), **(kept or {})}
        columns["prediction"] = pa.array(self.best)
        if self.labels is not None:
            columns |= {
                f"probability_{label}": pa.array(self.values[:, place])
                for place, label in enumerate(self.labels)
            }
        if self.times is not None:
            columns |= {
                f"survival_{time}": pa.array(self.values[:, place])
                for place, time in enumerate(self.times)
            }
        columns["remarks"] = pa.array(["; ".join(some) for some in self.row_remarks], pa.string())
        return pa.table(columns)

    def write(self, path: str | Path, kept: Mapping[str, Any] | None = None) -> None:
        """Write the predictions to a .csv, .tsv or .parquet file."""
        write_table(self.to_table(kept), Path(path))


def check_output(path: Path) -> Path:
    """Refuse a file of an unknown kind, before any work is done."""
    if path.suffix not in FILES:
        raise RequestError(
            f'predictions are written to a .csv, .tsv or .parquet file; got "{path.name}".'
        )
    return path


def write_table(table: Any, path: Path) -> None:
    """Write a table to a .csv, .tsv or .parquet file, whole or not at all."""
    from pyarrow import csv, parquet

    check_output(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with writing_atomically(path) as file:
            if path.suffix == ".parquet":
                parquet.write_table(table, file)
            else:
                csv.write_csv(table, file, csv.WriteOptions(delimiter=_delimiter(path)))
    except OSError as reason:
        why = (reason.strerror or str(reason)).lower()
        raise StateError(f"{path} cannot be written: {why}. Choose another file.") from reason


def csv_text(table: Any) -> str:
    """Write a table as CSV text."""
    import io

    from pyarrow import csv

    written = io.BytesIO()
    csv.write_csv(table, written)
    return written.getvalue().decode()


def _delimiter(path: Path) -> str:
    return "\t" if path.suffix == ".tsv" else ","


def predict_table(
    predict: Callable[[Tensor], Tensor],
    schema: Schema,
    client: str,
    rows: Rows,
    *,
    strict: bool = False,
) -> Predictions:
    """Encode raw rows, and predict them.

    Args:
        predict: Maps encoded rows to probabilities or values.
        schema: The schema of one site.
        client: The site that the model was made for.
        rows: The rows.
        strict: Whether anything that would be repaired or remarked on is refused instead.

    Raises:
        DataError: Rows that cannot be used, or with `strict` any that need a repair.
    """
    if strict:
        rows.refuse_left_out()
    rows = _matched(schema, rows)
    _check_absent(schema, rows.table)
    encoded = _encoded(schema, rows)
    positions = _positions(schema, rows, encoded.remarks)
    found = zip(encoded.remarks, positions, strict=True)
    notes = [Note(str(remark), where, _short(remark)) for remark, where in found]
    notes += _elsewhere(schema, client, rows)
    if strict and notes:
        raise DataError(f"{notes[0].sentence} With --strict (strict=True), such rows are refused.")
    with torch.no_grad():  # in parts: a model may compare each row with many others
        parts = [predict(x) for x in torch.split(torch.from_numpy(encoded.x), AT_ONCE)]
    values = torch.cat(parts).double().numpy().reshape(len(encoded.x), -1)
    if not np.isfinite(values).all():
        raise StateError(
            "the model's predictions are not finite numbers: its training has diverged. Train it "
            "again with a smaller --lr."
        )
    kind, outputs = schema.target.kind, schema.target.labels
    return Predictions(
        values[:, 0] if kind == "regression" else values,
        outputs if kind in ("classes", "labels") else None,
        (*rows.remarks, *(note.sentence for note in notes)),
        _by_row(len(values), notes),
        outputs if kind == "survival" else None,
        together=kind == "labels",
    )


def _matched(schema: Schema, rows: Rows) -> Rows:
    """Use a column whose name differs in case or spaces only, if the right one is missing."""
    names, wanted = rows.table.column_names, [column.name for column in schema.columns]
    free = [name for name in names if name not in wanted]
    keys = Counter(same_spelling(name) for name in (*free, *wanted))
    right = {same_spelling(name): name for name in wanted if name not in names}
    found = {
        name: right[same_spelling(name)]
        for name in free
        if same_spelling(name) in right and keys[same_spelling(name)] == 2
    }
    if not found:
        return rows
    table = rows.table.rename_columns([found.get(name, name) for name in names])
    remarks = [f'column "{name}" was read as "{other}".' for name, other in found.items()]
    return Rows(table, rows.row_name, (*rows.remarks, *remarks))


def _encoded(schema: Schema, rows: Rows) -> Encoded:
    try:
        return schema.encode(rows.table, row_name=rows.row_name)
    except DataError as error:
        # The advice is for training; here the schema is fixed.
        said, advice, _ = str(error).partition(" Fill them with ")
        if not advice:
            raise
        raise DataError(
            f"{said} The model was trained without missing values: complete the rows, or train it "
            "with `--missing median`."
        ) from None


def needs_schema(schema: Schema | None, path: Any) -> Schema:
    """Refuse a model that was not trained on a table."""
    if schema is None:
        raise CapabilityError(
            f"{path} has no schema: the model was not trained on a table (`--table`), or was "
            "exported by an earlier version. Pass encoded inputs to "
            "`motet.load_predictor(...).predict(x)` instead."
        )
    return schema


def kept_columns(table: Any, wanted: Sequence[str], labels: Sequence[str] | None) -> dict[str, Any]:
    """Choose columns of the input that are written beside the predictions."""
    reserved = {*OWN, *(f"probability_{label}" for label in labels or ())}
    for name in wanted:
        if name not in table.column_names:
            raise RequestError(
                f'--keep: the rows have no column "{name}"; {nearest(name, table.column_names)}.'
            )
        if name in reserved:
            raise RequestError(
                f'--keep: the predictions have a column "{name}" themselves. Rename it in the rows.'
            )
    return {name: table[name] for name in wanted}


def _check_absent(schema: Schema, table: Any) -> None:
    """Refuse a table without any of the columns: it is not a table of such rows."""
    names = table.column_names
    wanted = [column.name for column in schema.columns]
    if not set(wanted) & set(names):
        raise DataError(
            f"the rows have none of the {plural(len(wanted), 'column')} that the model needs "
            f"({', '.join(wanted[:6])}{', ...' if wanted[6:] else ''}); found "
            f"{', '.join(map(str, names[:6])) or 'no columns'}. Is the first line a header?"
        )


def _elsewhere(schema: Schema, client: str, read: Rows) -> list[Note]:
    """Remark on rows that name another site than the one the model was made for."""
    if schema.client is None or schema.client not in read.table.column_names:
        return []
    cells = to_cells(read.table[schema.client], MissingValues(schema.na))
    foreign = [same_spelling(text) != same_spelling(client) for text in cells.values]
    rows = np.flatnonzero(np.asarray([*foreign, False])[cells.codes])
    if not len(rows):
        return []
    first = int(rows[0])
    sentence = (
        f'column "{schema.client}": {plural(len(rows), "row")} of another site than "{client}", '
        f'for which the model was made, such as "{cells.values[cells.codes[first]]}" in '
        f"{read.row_name(first)}."
    )
    return [Note(sentence, rows.tolist(), f"{schema.client}: another site")]


class _Places(Noticed):
    """Collects which rows a remark is about."""

    def __init__(self, rows: Rows) -> None:
        super().__init__(rows.row_name, [], rows.row_name)
        self.masks: dict[tuple[str, str], NDArray[np.bool_]] = {}

    def add(self, column: str, what: Any, rows: Any, example: Any = None) -> None:
        """Keep the rows instead of counting them."""
        self.masks[column, what] = self.masks.get((column, what), False) | rows


def _positions(schema: Schema, rows: Rows, remarks: Sequence[Remark]) -> list[list[int]]:
    """Find the rows that each remark is about."""
    places, everywhere = _Places(rows), np.ones(len(rows.table), bool)
    for name in {remark.column for remark in remarks}:
        if name in rows.table.column_names:
            column = schema.column(name)
            block = read_block(schema, column, rows.table[name], places)
            places.add(name, "filled", block.holes)
        else:
            places.add(name, "missing_column", everywhere)
    found = [places.masks.get((r.column, r.what), ~everywhere) for r in remarks]
    return [np.flatnonzero(mask).tolist() for mask in found]


def _short(remark: Remark) -> str:
    words = {
        "filled": "missing, filled",
        "unknown": "unknown category",
        "out_of_range": "outside the training range",
        "missing_column": "missing column, filled",
        "unknown_site": "unknown site",
    }
    return f"{remark.column}: {words[remark.what]}"


def _by_row(rows: int, notes: Sequence[Note]) -> tuple[tuple[str, ...], ...]:
    found: list[list[str]] = [[] for _ in range(rows)]
    for note in notes:
        for row in note.rows:
            found[row].append(note.short)
    return tuple(map(tuple, found))
