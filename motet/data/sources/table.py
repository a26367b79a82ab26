"""Federations from a CSV or Parquet table with a row per example."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from motet.data.divide import allot, federate
from motet.data.federation import Federation
from motet.data.partition import Natural
from motet.data.raw import Raw
from motet.data.sources.columns import Kind, encode_features, encode_target, to_ids
from motet.data.sources.common import split_names
from motet.data.sources.fill import Missing, fill_missing, standardizer
from motet.data.split import Split
from motet.errors import DataError, RequestError, nearest


def from_table(
    path: str | Path,
    *,
    client: str,
    target: str,
    features: Sequence[str] | None = None,
    categorical: Sequence[str] = (),
    split: Split | str | None = None,
    kind: Kind = "auto",
    missing: Missing = "error",
    standardize: bool = False,
    seed: int = 0,
    name: str | None = None,
) -> Federation:
    """Make a federation of a table whose rows name their client.

    Args:
        path: A `.csv` or `.parquet` file.
        client: Column that names the client of each row.
        target: Column to predict. Text, booleans and integers are classes, other numbers are
            regression.
        features: Input columns; None takes all others.
        categorical: Input columns to one-hot encode; text must be named here.
        split: How each client's rows are cut (default: `Split()`), or the column that says train,
            val or test.
        kind: "classes" or "regression", where the target's type does not say it.
        missing: "error", or how to fill missing numbers: "median" of all clients' training rows, or
            "client-median" of the client's own (of all clients', where it has none). A missing
            category becomes zeros.
        standardize: Bring each input column to mean 0 and deviation 1 over all clients' training
            rows.
        seed: Names the cut.
        name: What to call the data; the file's name if left out.
    """
    table = read_table(Path(path))
    split_column = split if isinstance(split, str) else None
    taken = {client, target} | ({split_column} if split_column else set())
    require_columns(table, [*sorted(taken), *(features or ()), *categorical])
    chosen = _choose(table, features, taken, categorical)
    ids, answer = to_ids(table[client], client), encode_target(table[target], target, kind)
    x, columns = encode_features(table, chosen, categorical, ids, missing)
    raw = Raw(
        x=x,
        y=answer.y,
        clients=ids,
        split=split_names(table[split_column].to_pylist()) if split_column else None,
        labels=answer.labels,
        classes=answer.classes,
    )
    cut = split if isinstance(split, Split) else Split(test="official" if split_column else 0.2)
    allotment = allot(raw, Natural(), cut, seed)
    fill_missing(x, allotment.rows, columns, how=missing)
    if standardize:
        raw = replace(raw, normalize=standardizer(x, allotment.rows))
    source = {
        "from": "table",
        "client": client,
        "target": target,
        "features": chosen,
        "categorical": list(categorical),
        "missing": missing,
        "standardize": standardize,
    }
    recipe = {"source": source, "seed": seed, "split": cut.recipe()}
    return federate(raw, allotment, name=name or Path(path).stem, recipe=recipe, features=columns)


def read_table(path: Path) -> Any:
    """Read a `.csv` or `.parquet` file."""
    if not path.is_file():
        raise RequestError(f"there is no table at {path}.")
    if path.suffix == ".parquet":
        from pyarrow import parquet

        return _readable(path, parquet.read_table)
    if path.suffix == ".csv":
        from pyarrow import csv

        # An empty cell is a missing value in a text column too, not the text "".
        options = csv.ConvertOptions(strings_can_be_null=True)
        return _readable(path, partial(csv.read_csv, convert_options=options))
    raise RequestError(f'a table must be a .csv or .parquet file; "{path.name}" came.')


def _readable(path: Path, read: Callable[[Path], Any]) -> Any:
    from pyarrow import ArrowException

    try:
        table = read(path)
        table.validate(full=True)  # names, text and offsets that would fail when they are used
    except (ArrowException, OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as a table: {error}") from None
    return table


def require_columns(table: Any, columns: Sequence[str]) -> None:
    """Refuse a table that lacks one of the columns."""
    for column in columns:
        if column not in table.column_names:
            raise RequestError(
                f'the table has no column "{column}"; {nearest(column, table.column_names)}'
            )


def _choose(
    table: Any, features: Sequence[str] | None, taken: set[str], categorical: Sequence[str]
) -> list[str]:
    chosen = (
        [c for c in table.column_names if c not in taken] if features is None else list(features)
    )
    overlap = sorted(taken & set(chosen))
    if overlap:
        raise RequestError(
            f'column "{overlap[0]}" names the client, the target or the split; '
            "it cannot be a feature as well."
        )
    stray = [column for column in categorical if column not in chosen]
    if stray:
        raise RequestError(f'categorical names "{stray[0]}", which is not among the features.')
    if not chosen:
        raise RequestError("the table has no columns left to predict from.")
    return chosen
