"""UCI heart disease: 920 patients of four hospitals, 13 measurements, many of them missing.

Missing values are not estimated from the data: no row depends on statistics of other rows, so
nothing can leak from a test patient or from one hospital to another. A missing number becomes the
reference value below and its flag is 1; a missing code leaves all its columns 0.

R. Detrano et al. "International application of a new probability algorithm for the diagnosis of
coronary artery disease." American Journal of Cardiology, 1989.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from motet.data._registry import Dataset, Raw
from motet.data._sets.files import Arrays, Held, Source, open_raw
from motet.errors import DataError

WHERE = (
    "processed.cleveland.data, .hungarian, .switzerland and .va are at "
    "https://archive.ics.uci.edu/dataset/45/heart+disease."
)
PATIENTS = {"cleveland": 303, "hungarian": 294, "switzerland": 123, "va": 200}
# fmt: off
COLUMNS = (
    "age", "sex", "cp", "trestbps", "chol", "fbs", "restecg",
    "thalach", "exang", "oldpeak", "slope", "ca", "thal", "num",
)
# fmt: on

# (reference, unit): round numbers in clinical units, chosen without looking at the patients.
NUMBERS = {
    "age": (50.0, 10.0),  # years
    "trestbps": (130.0, 20.0),  # resting blood pressure, mm Hg
    "chol": (240.0, 50.0),  # cholesterol, mg/dl
    "thalach": (150.0, 25.0),  # highest heart rate, beats per minute
    "oldpeak": (1.0, 1.0),  # ST depression, mm
    "ca": (1.0, 1.0),  # vessels coloured by fluoroscopy, 0 to 3
    "sex": (0.0, 1.0),  # 1 = male
    "fbs": (0.0, 1.0),  # 1 = fasting blood sugar above 120 mg/dl
    "exang": (0.0, 1.0),  # 1 = exercise brings on angina
}
ALWAYS_THERE = ("age", "sex", "num")
CODES = {
    "cp": (1, 2, 3, 4),  # chest pain: typical, atypical, not anginal, none
    "restecg": (0, 1, 2),  # normal, ST-T wave, hypertrophy
    "slope": (1, 2, 3),  # of the ST segment: up, flat, down
    "thal": (3, 6, 7),  # normal, fixed defect, reversible defect
}
# A blood pressure or a cholesterol of 0 is impossible: in these files it means "not measured".
ZERO_IS_MISSING = ("trestbps", "chol")

FEATURES = (
    *NUMBERS,
    *(f"{name}_missing" for name in NUMBERS if name not in ALWAYS_THERE),
    *(f"{name}={code}" for name, codes in CODES.items() for code in codes),
)


def encode(columns: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float32]:
    """Turn measurements by name, NaN where missing, into rows of `FEATURES`."""
    numbers = [(columns[name] - centre) / unit for name, (centre, unit) in NUMBERS.items()]
    flags = [np.isnan(columns[name]) for name in NUMBERS if name not in ALWAYS_THERE]
    codes = [columns[name] == code for name, known in CODES.items() for code in known]
    return np.nan_to_num(np.column_stack([*numbers, *flags, *codes]).astype(np.float32))


def clean(name: str, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the column with NaN for values that were not measured; refuse a recoded copy."""
    if name in ZERO_IS_MISSING:
        return np.where(values == 0, np.nan, values)
    strange = set(values[~np.isnan(values)]) - set(CODES.get(name, values))
    if strange or (name in ALWAYS_THERE and np.isnan(values).any()):
        raise DataError(
            f"column {name} should hold {CODES.get(name, 'a number for every patient')}; it has "
            f"{sorted(strange) or 'gaps'}. This copy is recoded: use UCI's processed.*.data files."
        )
    return values


def decode_processed(held: Held) -> Arrays:
    """Read UCI's four files, one per hospital, "?" where a value is missing."""
    rows = [
        [hospital, *row]
        for hospital in PATIENTS
        for row in csv.reader(io.StringIO(held.read(f"processed.{hospital}.data").decode("ascii")))
        if row
    ]
    return check_complete(assemble(rows))


def decode_table(held: Held) -> Arrays:
    """Read the converted copy, one table with a hospital column, empty where a value is missing."""
    _, *rows = csv.reader(io.StringIO(held.read("heart_disease.csv").decode("ascii")))
    return check_complete(assemble(rows))


def assemble(rows: Sequence[Sequence[str]]) -> Arrays:
    """Turn rows of hospital, 13 measurements and diagnosis into arrays."""
    widths = {len(row) for row in rows}
    if widths != {1 + len(COLUMNS)}:
        raise DataError(
            f"every patient should have {len(COLUMNS)} columns, got rows with "
            f"{sorted(width - 1 for width in widths)}. Use UCI's processed.*.data files."
        )
    table = np.array([[_number(cell) for cell in row[1:]] for row in rows])
    columns = {name: clean(name, table[:, place]) for place, name in enumerate(COLUMNS)}
    return {
        "x": encode(columns),
        "y": (columns["num"] > 0).astype(np.int64),
        "clients": np.array([row[0] for row in rows]),
    }


def _number(cell: str) -> float:
    try:
        return float("nan") if cell.strip() in ("", "?") else float(cell)
    except ValueError:
        raise DataError(
            f'a measurement should be a number, or "?" if it is missing; got "{cell}". '
            f"Get the files again: {WHERE}"
        ) from None


def check_complete(arrays: Arrays) -> Arrays:
    """Refuse a table with too few or too many patients; UCI publishes no checksums."""
    hospitals, counts = np.unique(arrays["clients"], return_counts=True)
    found = dict(zip(hospitals.tolist(), counts.tolist(), strict=True))
    if found != PATIENTS:
        raise DataError(
            f"the four hospitals should have {PATIENTS} patients; the files have {found}. "
            f"Get them again: {WHERE}"
        )
    return arrays


SOURCES = (
    Source(
        ("heart-disease",), {f"processed.{name}.data": None for name in PATIENTS}, decode_processed
    ),
    Source(
        ("heart_disease_by_hospital", "heart-disease"),
        {"heart_disease.csv": "3112f7b155019e1993b88cb9e9f5450805f594469cb30828b01d0b2eeda76910"},
        decode_table,
    ),
)


def load(sources: Sequence[Source] = SOURCES) -> Raw:
    """Return float32 [920, 29] with each patient's hospital; the label 1 is narrowed arteries."""
    return open_raw("heart-disease", sources, WHERE, labels=("healthy", "diseased"))


HEART_DISEASE = Dataset(
    name="heart-disease",
    summary="920 patients of 4 hospitals, 13 measurements (many missing), diseased or healthy",
    load=load,
    natural=True,
    default_partition=None,
    where=WHERE,
)
