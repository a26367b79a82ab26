"""TCGA-BRCA: survival of 1,088 breast cancer patients in six regions, as in FLamby.

Targets are (time in days, event): event is 1 where the patient died then, and 0 where the patient
was last seen alive. The 39 columns are FLamby's; the age is in decades around 60.

J. Ogier du Terrail et al. "FLamby: Datasets and Benchmarks for Cross-Silo Federated Learning in
Realistic Healthcare Settings." NeurIPS 2022.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence

import numpy as np

from motet.data._raw import Raw
from motet.data._registry import Dataset
from motet.data._sets.files import Arrays, Held, Source, open_arrays
from motet.errors import DataError

WHERE = (
    "brca.csv and train_test_split.csv are in flamby/datasets/fed_tcga_brca of "
    "https://github.com/owkin/FLamby (the second in dataset_creation_scripts)."
)
REGIONS = ("Northeast", "South", "West", "Midwest", "Europe", "Canada")  # FLamby's clients 0 to 5
PATIENTS = dict(zip(REGIONS, (311, 196, 206, 162, 162, 51), strict=True))
AGE, AGE_UNIT = 60.0, 10.0  # round numbers, chosen without looking at the patients
FEATURES = 39
NOT_FEATURES = ("pid", "E", "T", "tss", "region", "fold", "fold2")


def decode_flamby(held: Held) -> Arrays:
    """Read FLamby's two files: the patients, and who is where and in which split."""
    folds = {row["pid"]: row["fold2"] for row in _rows(held, "train_test_split.csv")}
    rows = []
    for row in _rows(held, "brca.csv"):
        fold, _, number = folds.get(row["pid"], "").partition("_")
        if not number.isdigit() or int(number) >= len(REGIONS):
            raise DataError(
                f"train_test_split.csv has no client for patient {row['pid']}. Get both files "
                f"again: {WHERE}"
            )
        rows.append({**row, "region": REGIONS[int(number)], "fold": fold})
    return assemble(rows)


def decode_table(held: Held) -> Arrays:
    """Read the converted copy, one table with the region and the fold of each patient."""
    return assemble(list(_rows(held, "tcga_brca.csv")))


def _rows(held: Held, name: str) -> csv.DictReader[str]:
    return csv.DictReader(io.StringIO(held.read(name).decode("utf-8")))


def assemble(rows: Sequence[Mapping[str, str]]) -> Arrays:
    """Turn patients into arrays; refuse a table with too few or too many of them."""
    names = [name for name in rows[0] if name not in NOT_FEATURES]
    counts = {region: sum(row["region"] == region for row in rows) for region in REGIONS}
    if len(names) != FEATURES or counts != PATIENTS:
        raise DataError(
            f"TCGA-BRCA should have {FEATURES} columns and {PATIENTS} patients; the files have "
            f"{len(names)} and {counts}. Get them again: {WHERE}"
        )
    x = np.array([[float(row[name]) for name in names] for row in rows], np.float32)
    age = names.index("age_at_index")
    x[:, age] = (x[:, age] - AGE) / AGE_UNIT
    return {
        "x": x,
        "y": np.array([[float(row["T"]), float(row["E"])] for row in rows], np.float32),
        "clients": np.array([row["region"] for row in rows]),
        "split": np.array([row["fold"] for row in rows]),
    }


SOURCES = (
    Source(("tcga-brca",), {"brca.csv": None, "train_test_split.csv": None}, decode_flamby),
    Source(
        ("tcga_brca_by_region", "tcga-brca"),
        {"tcga_brca.csv": "548a966d917dac61136fc53a963ce5b92aed682044a13a8646cd4bd07370ffd3"},
        decode_table,
    ),
)


def load(sources: Sequence[Source] = SOURCES) -> Raw:
    """Return float32 [1088, 39] with each patient's region, and FLamby's train and test rows."""
    arrays = open_arrays("tcga-brca", sources, WHERE)
    return Raw(
        arrays["x"], arrays["y"], clients=arrays["clients"], split=arrays["split"], survival=True
    )


TCGA_BRCA = Dataset(
    name="tcga-brca",
    summary="1,088 breast cancer patients of 6 regions, 39 columns, time to death",
    load=load,
    natural=True,
    default_partition=None,
    where=WHERE,
)
