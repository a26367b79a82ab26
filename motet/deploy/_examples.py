"""Example data of the sites: the data of a client in the run, to be replaced by the site."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motet.config import TableData
from motet.config._sections import DataChoice
from motet.data._convert import is_tokens
from motet.data._federation import Federation
from motet.data._raw import SPLITS
from motet.data._sources.table import prepare_table

SPLIT = "split"  # column of a table that contains train, val or test


def agreed_data(data: DataChoice, federation: Federation) -> dict[str, Any]:
    """Describe the form of every site's examples, as the `[data]` table of a deployment."""
    table: dict[str, Any] = {
        "shape": list(federation.shape),
        "inputs": "tokens" if is_tokens(federation.x.dtype) else "numbers",
        "target_shape": list(federation.y.shape),
        "seed": data.seed,
    }
    if federation.classes is not None:
        table["classes"] = federation.classes
    if federation.labels is not None:
        table["labels"] = list(federation.labels)
    if federation.normalize is not None:
        table |= {"mean": list(federation.normalize.mean), "std": list(federation.normalize.std)}
    if isinstance(data, TableData):
        assert federation.schema is not None
        # Statistics of single sites stay at the sites, which compute their own.
        agreed = replace(federation.schema, site_fills={}, site_scaling={})
        table |= {
            "schema": json.dumps(agreed.to_dict(), ensure_ascii=False),
            "target": data.target,
            "split": _split_column(data),
            "missing": data.missing,
            "indicators": data.indicators,
            "rare": data.rare,
            "standardize": data.standardize,
        }
    return table


def write_examples(
    folder: Path, data: DataChoice, federation: Federation, client: str, raw: Any = None
) -> None:
    """Write a client's rows in the form that its site uses: data.csv, or data/SPLIT.npz.

    Args:
        folder: Of the site.
        data: Where the rows come from.
        federation: The same rows as inputs.
        client: Whose rows.
        raw: For a table: its rows as they were read (`raw_table`).
    """
    if isinstance(data, TableData):
        _write_table(folder / "data.csv", data, federation, client, raw)
    else:
        _write_arrays(folder / "data", federation, client)


def _split_column(data: TableData) -> str:
    return data.split or SPLIT


def _write_arrays(folder: Path, federation: Federation, client: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for split in SPLITS:
        x, y = _rows(federation, client, split)
        np.savez_compressed(folder / f"{split}.npz", x=x, y=y)


def raw_table(data: DataChoice) -> Any:
    """Read the rows of a table as they are, in the order of the federation; None for other data."""
    return (
        prepare_table(data.table, **data.options()).table if isinstance(data, TableData) else None
    )


def _write_table(
    path: Path, data: TableData, federation: Federation, client: str, raw: Any
) -> None:
    assert federation.schema is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    columns_used = [column.name for column in federation.schema.columns]
    target = federation.schema.target
    names = [*columns_used, *target.columns]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*names, _split_column(data)])
        for number, split in enumerate(SPLITS):
            rows = federation.rows.rows(federation.clients.index(client), number)
            columns = [raw[name].take(rows).to_pylist() for name in names]
            writer.writerows([*cells, split] for cells in zip(*columns, strict=True))


def _rows(federation: Federation, client: str, split: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Read rows as they are stored: they are normalized when a site reads them."""
    rows = federation.rows.rows(federation.clients.index(client), SPLITS.index(split))
    return federation.x.take(rows), federation.y.take(rows)
