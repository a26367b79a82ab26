"""Federations from CSV and Parquet."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from motet.data import Split, from_table
from motet.errors import DataError, RequestError

VISITS = """hospital,age,sex,dose,outcome
north,50,f,1.5,ill
north,60,m,2.5,well
north,70,f,3.5,ill
south,40,m,0.5,well
south,30,f,1.0,ill
south,20,m,1.5,well
"""
TRAIN_ONLY = Split(val=0.0, test=0.0)


def write(tmp_path, text, name="visits.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


def opened(tmp_path, text=VISITS, **options):
    settings = {"client": "hospital", "target": "outcome", "split": TRAIN_ONLY} | options
    return from_table(write(tmp_path, text), **settings)


def test_a_table_becomes_a_client_per_hospital_with_named_labels(tmp_path):
    data = opened(tmp_path, features=["age", "dose"])
    assert (data.name, data.clients, data.labels) == ("visits", ("north", "south"), ("ill", "well"))
    x, y = data.examples("north", "train")
    assert x.tolist() == [[50, 1.5], [60, 2.5], [70, 3.5]]
    assert y.tolist() == [0, 1, 0]


def test_columns_of_one_name_are_refused_where_they_are_used(tmp_path):
    twice = VISITS.replace("dose", "age")
    for settings in ({}, {"features": ["age"]}, {"target": "age"}, {"client": "age"}):
        with pytest.raises(DataError, match=r'2 columns named "age".*Rename all columns'):
            opened(tmp_path, twice, **{"categorical": (), **settings})
    sex = opened(tmp_path, twice, features=["sex"], categorical=["sex"])
    assert sex.features == ("sex=f", "sex=m")


def test_csv_and_parquet_give_the_same_federation(tmp_path):
    from pyarrow import csv

    path = write(tmp_path, VISITS)
    parquet.write_table(csv.read_csv(path), tmp_path / "visits.parquet")
    settings = {"client": "hospital", "target": "outcome", "categorical": ["sex"]}
    one, two = (from_table(p, **settings) for p in (path, tmp_path / "visits.parquet"))
    assert one.hash == two.hash
    assert np.array_equal(one.x.blocks[0], two.x.blocks[0])


def test_text_in_features_is_refused_until_it_is_called_categorical(tmp_path):
    with pytest.raises(
        DataError,
        match=r'column "sex" holds text \("f" in row 2 .*`--categorical sex` \(categorical=',
    ):
        opened(tmp_path)
    data = opened(tmp_path, categorical=["sex"])
    assert data.features == ("age", "sex=f", "sex=m", "dose")
    assert data.examples("south", "train").x[:, 1:3].tolist() == [[0, 1], [1, 0], [0, 1]]


def test_a_missing_client_column_is_answered_with_the_nearest(tmp_path):
    with pytest.raises(RequestError, match='no column "hospitl"; did you mean "hospital"'):
        opened(tmp_path, client="hospitl")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"features": ["age", "outcome"]}, '"outcome" names the client, the target or the split'),
        ({"features": ["age"], "categorical": ["sex"]}, '"sex", which is not among the features'),
        ({"features": []}, "no columns left"),
        ({"features": ["agee"]}, 'did you mean "age"'),
        ({"features": ["age"], "missing": "mode"}, "missing must be"),
        ({"features": ["age"], "kind": "class"}, "kind must be"),
    ],
)
def test_wrong_columns_and_options_are_refused(tmp_path, options, sentence):
    with pytest.raises(RequestError, match=sentence):
        opened(tmp_path, **options)


def test_files_of_other_kinds_are_refused(tmp_path):
    with pytest.raises(RequestError, match=r'got "visits\.sav"\. Save it as \.csv or \.xlsx'):
        from_table(write(tmp_path, VISITS, "visits.sav"), client="hospital", target="outcome")
    with pytest.raises(RequestError, match="there is no table"):
        from_table(tmp_path / "nothing.csv", client="hospital", target="outcome")


def test_a_broken_table_is_refused(tmp_path):
    with pytest.raises(
        DataError,
        match=r"cannot be read as a table: row 3 has 3 cells, expected 2.*--bad-rows skip",
    ):
        from_table(write(tmp_path, "a,b\n1,2\n1,2,3\n"), client="a", target="b")
    with pytest.raises(DataError, match=r"If it is text, rename it to t\.csv"):
        from_table(write(tmp_path, "no parquet", "t.parquet"), client="a", target="b")


# Training doses: north 1, 3 (hole in its third row); south 10, 20, 60; west has none at all.
HOLES = """site,dose,split,sick
north,1,train,0
north,3,train,1
north,,train,0
south,10,train,0
south,20,train,1
south,60,train,1
west,,train,0
north,,test,1
south,,test,0
south,1000,test,0
"""


def doses(tmp_path, missing):
    path = write(tmp_path, HOLES, "holes.csv")
    data = from_table(path, client="site", target="sick", split="split", missing=missing)
    assert (
        data.sizes("val")["south"] == 1
    )  # the split column has no val, so a fifth of train is taken
    return data


def test_missing_numbers_are_refused_with_column_row_and_fix(tmp_path):
    with pytest.raises(
        DataError,
        match=r'column "dose": 4 of 10 values are missing, the first in row 4 \(client "north"\)',
    ):
        doses(tmp_path, "error")


def all_train(tmp_path, missing):
    path = write(tmp_path, HOLES, "holes.csv")
    options = {"client": "site", "target": "sick", "features": ["dose"], "missing": missing}
    return from_table(path, split=TRAIN_ONLY, **options)


def test_the_median_of_all_clients_fills_holes(tmp_path):
    data = all_train(tmp_path, "median")  # of 1, 3, 10, 20, 60, 1000
    assert data.examples("west", "train").x.tolist() == [[15.0]]
    assert data.examples("north", "train").x[:, 0].tolist() == [1, 3, 15, 15]


def test_the_clients_own_median_fills_holes_or_the_pooled_one_if_it_has_none(tmp_path):
    data = all_train(tmp_path, "client-median")
    assert data.examples("north", "train").x[:, 0].tolist() == [1, 3, 2, 2]
    assert data.examples("south", "train").x[:, 0].tolist() == [10, 20, 60, 40, 1000]
    assert data.examples("west", "train").x.tolist() == [[15.0]]


def test_medians_never_use_held_out_rows(tmp_path):
    held = (
        "site,dose,split,sick\n"
        + "a,1,train,0\na,3,train,1\na,100,test,0\na,,test,1\na,500,val,1\n"
    )
    path = write(tmp_path, held)
    for missing in ("median", "client-median"):
        data = from_table(path, client="site", target="sick", split="split", missing=missing)
        assert data.examples("a", "test").x[:, 0].tolist() == [100, 2]


def test_a_column_without_any_training_value_has_no_median(tmp_path):
    text = "site,dose,sick\na,,0\na,,1\n"
    with pytest.raises(DataError, match=r'column "dose" has no value in any row.*--drop dose'):
        from_table(write(tmp_path, text), client="site", target="sick", missing="median")


def test_a_missing_category_becomes_zeros_when_filling_is_allowed(tmp_path):
    text = "site,sex,sick\na,f,0\na,,1\na,m,1\n"
    settings = {"client": "site", "target": "sick", "categorical": ["sex"], "split": TRAIN_ONLY}
    path = write(tmp_path, text)
    with pytest.raises(DataError, match='column "sex": 1 of 3 values are missing'):
        from_table(path, **settings)
    data = from_table(path, missing="median", **settings)
    assert data.examples("a", "train").x.tolist() == [[1, 0], [0, 0], [0, 1]]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("site,x,y\na,1,0\n,2,1\n", "row 3 has no client.*--drop-missing-client"),
        ("site,x,y\na,1,0\na,2,\n", "row 3 has no target.*--drop-missing-target"),
        (
            "site,x,y\na,1,0\na,inf,1\n",
            r'column "x" should hold finite numbers; row 3 .* has inf.*--na inf',
        ),
        (
            "site,x,y\na,2020-01-01,0\na,2020-01-02,1\n",
            r'column "x" holds dates \(2020-01-01 in row 2 .*--dates x=age',
        ),
    ],
)
def test_cells_that_cannot_be_used_are_refused(tmp_path, text, sentence):
    with pytest.raises(DataError, match=sentence):
        from_table(write(tmp_path, text), client="site", target="y", split=TRAIN_ONLY)


@pytest.mark.parametrize(
    ("values", "kind", "classes", "labels", "y"),
    [
        ([0, 1, 2], "auto", 3, None, [0, 1, 2]),
        ([3, 5, 3], "auto", 2, ("3", "5"), [0, 1, 0]),
        ([True, False, True], "auto", 2, ("False", "True"), [1, 0, 1]),
        ([0.5, 1.5, 2.5], "auto", None, None, [0.5, 1.5, 2.5]),
        ([3, 5, 3], "regression", None, None, [3.0, 5.0, 3.0]),
        ([1.0, 2.0, 1.0], "classes", 2, ("1.0", "2.0"), [0, 1, 0]),
    ],
)
def test_targets_are_classes_or_numbers(tmp_path, values, kind, classes, labels, y):
    table = pa.table({"site": ["a"] * 3, "x": [1, 2, 3], "y": values})
    parquet.write_table(table, tmp_path / "t.parquet")
    path = tmp_path / "t.parquet"
    data = from_table(path, client="site", target="y", kind=kind, split=TRAIN_ONLY)
    assert (data.classes, data.labels) == (classes, labels)
    assert data.examples("a", "train").y.tolist() == y


def test_parquet_dictionaries_and_nan_are_understood(tmp_path):
    sex = pa.array(["f", "m", "f"]).dictionary_encode()
    table = pa.table({"site": ["a"] * 3, "sex": sex, "x": [1.0, float("nan"), 3.0], "y": [0, 1, 0]})
    path = tmp_path / "t.parquet"
    parquet.write_table(table, path)
    settings = {"client": "site", "target": "y", "categorical": ["sex"], "split": TRAIN_ONLY}
    with pytest.raises(
        DataError, match='column "x": 1 of 3 values are missing, the first in row 2'
    ):
        from_table(path, **settings)
    data = from_table(path, missing="median", **settings)
    assert data.examples("a", "train").x.tolist() == [[1, 0, 1], [0, 1, 2], [1, 0, 3]]


def test_standardizing_uses_training_rows_only(tmp_path):
    text = "site,x,flat,split,y\na,1,7,train,0\na,3,7,train,1\na,100,7,test,0\na,5,7,val,0\n"
    path = write(tmp_path, text)
    data = from_table(path, client="site", target="y", split="split", standardize=True)
    assert data.examples("a", "train").x.tolist() == [[-1, 0], [1, 0]]
    assert data.examples("a", "test").x.tolist() == [[98, 0]]


def test_the_manifest_says_how_the_table_was_read(tmp_path):
    source = opened(tmp_path, features=["age"]).manifest()["source"]
    assert source["from"] == "table"
    assert (source["client"], source["features"], source["missing"]) == (
        "hospital",
        ["age"],
        "error",
    )
