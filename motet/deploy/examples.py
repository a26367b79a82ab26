"""The data of the sites: each client of the run becomes the example that its site replaces."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motet.config import TableData
from motet.config.sections import DataChoice
from motet.data.convert import is_tokens
from motet.data.federation import Federation
from motet.data.raw import SPLITS

SPLIT = "split"  # column of a table that says train, val or test


def agreed_data(data: DataChoice, federation: Federation) -> dict[str, Any]:
    """Write down, as the `[data]` of a deployment, what every site's examples look like."""
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
        assert federation.features is not None
        columns = list(federation.features)
        table |= {"features": columns, "target": data.target, "split": _split_column(data)}
    return table


def write_examples(folder: Path, data: DataChoice, federation: Federation, client: str) -> None:
    """Write a client's rows as its site would: data.csv for a table, else data/SPLIT.npz."""
    if isinstance(data, TableData):
        _write_table(folder / "data.csv", data, federation, client)
    else:
        _write_arrays(folder / "data", federation, client)


def _split_column(data: TableData) -> str:
    return data.split or SPLIT


def _write_arrays(folder: Path, federation: Federation, client: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for split in SPLITS:
        x, y = _rows(federation, client, split)
        np.savez_compressed(folder / f"{split}.npz", x=x, y=y)


def _write_table(path: Path, data: TableData, federation: Federation, client: str) -> None:
    assert federation.features is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*federation.features, data.target, _split_column(data)])
        for split in SPLITS:
            x, y = _rows(federation, client, split)
            answers = [federation.labels[code] for code in y] if federation.labels else y
            # As text of their own type: 0.1 in single precision is "0.1", not 0.10000000149.
            for inputs, answer in zip(x.astype(str), answers, strict=True):
                writer.writerow([*inputs, str(answer), split])


def _rows(federation: Federation, client: str, split: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Read rows as they are stored: they are normalized where they are used."""
    rows = federation.rows.rows(federation.clients.index(client), SPLITS.index(split))
    return federation.x.take(rows), federation.y.take(rows)
