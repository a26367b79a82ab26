"""Tables that a recipe needs and no dataset of Motet is: the preparations of other benchmarks."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from motet._core.atomic import write_atomically
from motet.data._sets import heart_disease
from motet.data._sets.files import Held, locate
from motet.errors import DataError, RequestError, nearest

TRAIN_SHARE, SPLIT_SEED = 0.66, 43  # FLamby's
LEFT_OUT = ("slope", "ca", "thal")
DUMMIES = ("cp", "restecg")
PATIENTS = {"cleveland": 303, "hungarian": 261, "switzerland": 46, "va": 130}
Columns = dict[str, NDArray[np.float64]]


def prepared(name: str, folder: Path) -> Path:
    """Write the table called `name` to a folder, and return its path."""
    if name not in _TABLES:
        raise RequestError(f'no preparation is called "{name}"; {nearest(name, _TABLES)}.')
    path = folder / f"{name}.csv"
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(path, _TABLES[name]().encode())
    return path


def flamby_heart() -> str:
    """Write Fed-Heart-Disease as FLamby prepares it.

    Patients with a missing value are left out; chest pain and ECG become dummies without the first;
    each hospital draws 66% of its patients for training (stratified, but for Switzerland, which has
    one healthy patient) and scales all columns by the
    mean and deviation of these. A column that is constant there becomes 0.
    """
    rows = [
        row
        for hospital, columns in _complete_patients().items()
        for row in _hospital_rows(hospital, columns)
    ]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _complete_patients() -> dict[str, Columns]:
    """Read each hospital's patients without a missing value among the columns that are used."""
    held = locate("heart-disease", heart_disease.SOURCES, heart_disease.WHERE)
    kept = [name for name in heart_disease.COLUMNS if name not in LEFT_OUT]
    places = [heart_disease.COLUMNS.index(name) for name in kept]
    found = {}
    for hospital, rows in _rows_by_hospital(held).items():
        table = np.array([[_number(row[place]) for place in places] for row in rows])
        whole = table[~np.isnan(table).any(axis=1)]
        found[hospital] = dict(zip(kept, whole.T, strict=True))
    counts = {hospital: len(columns["num"]) for hospital, columns in found.items()}
    if counts != PATIENTS:
        raise DataError(
            f"FLamby's preparation leaves {PATIENTS} patients; these files leave {counts}. "
            f"Get them again: {heart_disease.WHERE}"
        )
    return found


def _rows_by_hospital(held: Held) -> dict[str, list[list[str]]]:
    if "heart_disease.csv" in held.paths:
        _, *rows = csv.reader(io.StringIO(held.read("heart_disease.csv").decode("ascii")))
        return {h: [row[1:] for row in rows if row[0] == h] for h in PATIENTS}
    texts = {h: held.read(f"processed.{h}.data").decode("ascii") for h in PATIENTS}
    return {h: [row for row in csv.reader(io.StringIO(t)) if row] for h, t in texts.items()}


def _number(cell: str) -> float:
    return float("nan") if cell.strip() in ("", "?") else float(cell)


def _hospital_rows(hospital: str, columns: Columns) -> list[Mapping[str, object]]:
    from sklearn.model_selection import train_test_split

    ill = (columns["num"] > 0).astype(int)
    numbers = np.arange(len(ill))
    train, _ = train_test_split(
        numbers,
        test_size=1.0 - TRAIN_SHARE,
        train_size=TRAIN_SHARE,
        random_state=SPLIT_SEED,
        stratify=ill if np.bincount(ill, minlength=2).min() > 2 else None,
    )
    is_train = np.isin(numbers, train)
    scaled = {name: _scaled(values, is_train) for name, values in _encoded(columns).items()}
    return [
        {
            "hospital": hospital,
            **{name: repr(float(values[n])) for name, values in scaled.items()},
            "diseased": int(ill[n]),
            "fold": "train" if is_train[n] else "test",
        }
        for n in numbers
    ]


def _encoded(columns: Columns) -> Columns:
    plain = {n: v for n, v in columns.items() if n not in (*DUMMIES, "num")}
    dummies = {
        f"{name}_{code}": (columns[name] == code).astype(float)
        for name in DUMMIES
        for code in heart_disease.CODES[name][1:]
    }
    return plain | dummies


def _scaled(values: NDArray[np.float64], is_train: NDArray[np.bool_]) -> NDArray[np.float64]:
    spread = values[is_train].std(ddof=1)
    return np.asarray((values - values[is_train].mean()) / (spread if spread > 0 else 1.0))


_TABLES: dict[str, Callable[[], str]] = {"flamby-heart": flamby_heart}
