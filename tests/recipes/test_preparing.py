"""Tables that recipes make: FLamby's heart disease."""

import csv

import numpy as np
import pytest

from motet._recipes.preparing import prepared
from motet.errors import DataError, RequestError

SIZES = ((199, 104), (172, 89), (30, 16), (85, 45))  # training and test rows
HOSPITALS = dict(zip(("cleveland", "hungarian", "switzerland", "va"), SIZES, strict=True))


@pytest.mark.data
def test_flamby_heart_has_the_published_sizes_and_is_scaled_by_training_rows(tmp_path):
    with prepared("flamby-heart", tmp_path).open() as file:
        rows = list(csv.DictReader(file))
    named = [name for name in rows[0] if name not in ("hospital", "diseased", "fold")]
    assert len(named) == 13
    for hospital, sizes in HOSPITALS.items():
        own = [row for row in rows if row["hospital"] == hospital]
        train = [row for row in own if row["fold"] == "train"]
        assert (len(train), len(own) - len(train)) == sizes
        x = np.array([[float(row[name]) for name in named] for row in train])
        spread = x.std(axis=0, ddof=1)
        assert np.allclose(x.mean(axis=0), 0)
        assert np.allclose(spread[spread > 0], 1)


def test_files_that_are_missing_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv("MOTET_DATA", str(tmp_path / "nothing"))
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(DataError, match="MOTET_DATA"):
        prepared("flamby-heart", tmp_path)


def test_an_unknown_preparation_is_refused(tmp_path):
    with pytest.raises(RequestError, match="flamby-heart"):
        prepared("flamby-hart", tmp_path)
