"""Raw rows to predictions: what is repaired, what is refused, and by which model."""

import csv
import gzip
import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hospital_world import SITES, federation, finished, raw_rows
from pyarrow import parquet
from torch import nn

import motet
from motet._export.batch import predict_file
from motet._export.opening import GraphModel, file_name, open_model, sites_in
from motet.data import Schema
from motet.errors import CapabilityError, DataError, RequestError, StateError
from motet.methods._catalog import method_class


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """The models of all sites, without graphs."""
    folder = tmp_path_factory.mktemp("models")
    motet.export_all(finished(motet.FedPer(), federation()), folder, onnx=False)
    return folder


@pytest.fixture(scope="module")
def north(models):
    return motet.load_predictor(models / "north")


def write_csv(path, columns, *, delimiter=",", encoding="utf-8", decimal="."):
    def cell(value):
        if value is None:
            return "?"
        return str(value).replace(".", decimal) if isinstance(value, float) else str(value)

    with path.open("w", newline="", encoding=encoding) as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(columns)
        writer.writerows([map(cell, row) for row in zip(*columns.values(), strict=True)])
    return path


# ---- The law: raw rows are encoded as in training, then predicted by the site's predictor ------


@pytest.mark.parametrize("name", ["fedper", "local", "knn-per", "flow", "fedem", "fedproto"])
def test_raw_rows_are_predicted_as_the_run_predicts_their_encoding(name, tmp_path):
    data = federation()
    run = finished(method_class(name)(), data, rounds=1)
    exported = motet.export(run, "north", tmp_path / "north", onnx=False)
    rows = raw_rows(20, "new")
    found = motet.load_predictor(exported.tensors).predict_rows(rows)
    expected = run.predict("north", data.schema.encode(rows, "north").x).numpy()
    np.testing.assert_allclose(found.values, expected, rtol=1e-5, atol=1e-6)
    assert found.labels == ("ill", "well")
    assert found.best == [("ill", "well")[place] for place in expected.argmax(1)]


def test_a_site_with_statistics_of_its_own_is_encoded_by_them(models):
    rows = raw_rows(20, "new")
    x = {
        site: motet.load_predictor(models / file_name(site)).schema.encode(rows).x for site in SITES
    }
    assert not np.array_equal(x["north"], x["south"])
    np.testing.assert_array_equal(x["south"], x["St. Mary / east"])


def test_an_export_holds_no_statistics_of_other_sites(models):
    about = motet.load_predictor(models / "south").about
    made = Schema.from_dict(about["schema"])
    assert made.site_scaling == made.site_fills == {}
    assert "north" not in str({k: v for k, v in about.items() if k != "references"})


def test_values_are_predicted_for_a_regression(tmp_path):
    data = federation("regression")
    run = finished(motet.FedRep(), data)
    predictor = motet.load_predictor(motet.export(run, "south", tmp_path / "s", onnx=False).tensors)
    rows = raw_rows(7, "new")
    found = predictor.predict_rows(rows)
    expected = run.predict("south", data.schema.encode(rows, "south").x).numpy()[:, 0]
    np.testing.assert_allclose(found.values, expected, rtol=1e-5)
    table = found.to_table()
    assert table.column_names == ["row", "prediction", "remarks"]
    assert table["prediction"].to_pylist() == found.best == list(found.values)


# ---- Sources ------------------------------------------------------------------------------------


def test_every_source_of_the_same_rows_gives_the_same_predictions(north, tmp_path):
    rows = raw_rows(12, "sources")
    expected = north.predict_rows(rows).values
    parquet.write_table(pa.table(rows), tmp_path / "rows.parquet")
    plain = write_csv(tmp_path / "rows.csv", rows)
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(plain.read_bytes()))
    sources = {
        "arrow": pa.table(rows),
        "dicts": [dict(zip(rows, row, strict=True)) for row in zip(*rows.values(), strict=True)],
        "parquet": tmp_path / "rows.parquet",
        "csv": plain,
        "gz": str(tmp_path / "rows.csv.gz"),
        "tsv": write_csv(tmp_path / "rows.tsv", rows, delimiter="\t"),
        "semicolons": write_csv(tmp_path / "german.csv", rows, delimiter=";", decimal=","),
        "utf-16": write_csv(tmp_path / "utf16.csv", rows, encoding="utf-16"),
        "other order": dict(reversed(rows.items())),
        "more columns": {"patient": list(range(12)), **rows},
    }
    for what, source in sources.items():
        np.testing.assert_array_equal(north.predict_rows(source).values, expected, what)


def test_a_list_of_something_else_is_refused(north):
    with pytest.raises(RequestError, match=r"a row must be \{column: value\}; got a int"):
        north.predict_rows([{"age": 1}, 3])


# ---- Repairs and refusals -----------------------------------------------------------------------


def changed(**columns):
    rows = raw_rows(4, "plain", fills=False)
    return {k: v for k, v in {**rows, **columns}.items() if v is not None}


@pytest.mark.parametrize(
    ("rows", "remark"),
    [
        (
            changed(chol=[None, 200, "?", 250]),
            'column "chol": a missing value was filled in 2 rows',
        ),
        (changed(chol=None), 'column "chol" is not in the table; it was filled in 4 rows'),
        (changed(sex=["f", "x", "M ", "x"]), "2 rows with a category that training did not have"),
        (changed(chol=[5.2, 4.9, 200, 6.0]), "3 rows outside the range of the training rows, such"),
        (
            changed(hospital=["north", "NORTH ", "south", "nowhere"]),
            '2 rows of another site than "north", for which the model was made, such as "south"',
        ),
        (changed(age=None, AGE=[30, 40, 50, 60]), 'column "AGE" was read as "age"'),
    ],
    ids=["missing", "column", "category", "unit", "site", "spelling"],
)
def test_a_repair_is_a_remark_that_counts_rows(north, rows, remark):
    found = north.predict_rows(rows)
    assert len(found.remarks) == 1
    assert remark in found.remarks[0]
    counted = re.search(r"(\d+) rows", found.remarks[0])
    if counted:  # and each of these rows says so
        assert sum(map(bool, found.row_remarks)) == int(counted.group(1))
    assert np.isfinite(found.values).all()


@pytest.mark.parametrize(
    "rows",
    [
        changed(chol=[None, 200, 300, 250]),
        changed(chol=None),
        changed(sex=["f", "x", "m", "x"]),
        changed(chol=[5.2, 4.9, 200, 6.0]),
        changed(hospital=["north", "north", "south", "north"]),
    ],
    ids=["missing", "column", "category", "unit", "site"],
)
def test_with_strict_what_would_be_repaired_is_refused(north, rows):
    (remark,) = north.predict_rows(rows).remarks
    with pytest.raises(DataError) as refused:
        north.predict_rows(rows, strict=True)
    assert str(refused.value).startswith(remark)
    assert "strict=True" in str(refused.value)


def test_rows_that_need_nothing_give_no_remark_and_pass_strict(north):
    assert north.predict_rows(changed(), strict=True).remarks == ()


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (changed(chol=[200, "high", 210, 220]), 'should hold numbers; row 2 has "high"'),
        (changed(chol=[200, float("inf"), 210, 220]), "should hold finite numbers; row 2 has inf"),
        (changed(visit=["2020-01-01", "soon", None, None]), "hold dates such as 1970-01-01; row 2"),
        ({"a": [1], "b": [2]}, "none of the 6 columns that the model needs (age, chol, sex, cp"),
    ],
    ids=["text", "infinite", "date", "other-table"],
)
def test_rows_that_cannot_be_used_are_refused_in_a_sentence(north, rows, sentence):
    with pytest.raises(DataError) as refused:
        north.predict_rows(rows)
    assert sentence in str(refused.value)


def test_a_model_trained_without_missing_values_refuses_them_with_advice_that_fits(tmp_path):
    run = finished(motet.Local(), federation(fills=False), rounds=1)
    predictor = motet.load_predictor(motet.export(run, "north", tmp_path / "n", onnx=False).tensors)
    with pytest.raises(DataError, match="trained without missing values: complete the rows, or"):
        predictor.predict_rows(changed(chol=[None, 200, 300, 250]))
    with pytest.raises(DataError, match='has no column "chol"'):
        predictor.predict_rows(changed(chol=None))


def test_a_diverged_model_predicts_nothing(north):
    broken = replace(north, personal={k: v * float("nan") for k, v in north.personal.items()})
    with pytest.raises(StateError, match="not finite numbers: its training has diverged"):
        broken.predict_rows(changed())


def test_a_model_of_images_has_no_rows(tmp_path):
    data = replace(federation(), schema=None)
    run = finished(motet.Local(), data, rounds=0)
    exported = motet.export(run, "north", tmp_path / "n", onnx=False)
    with pytest.raises(CapabilityError, match="not trained on a table"):
        motet.load_predictor(exported.tensors).predict_rows(changed())


# ---- A directory of models ----------------------------------------------------------------------


def test_each_row_is_predicted_by_the_model_of_its_site(models):
    rows = raw_rows(30, "all")
    sites = [SITES[place % 3] for place in range(30)]
    sites[4] = " SOUTH"
    found = predict_file(models, {**rows, "hospital": sites})
    for site in SITES:
        places = [p for p in range(30) if sites[p].strip().lower() == site.lower()]
        own = {name: [values[p] for p in places] for name, values in rows.items()}
        expected = motet.load_predictor(models / file_name(site)).predict_rows(own).values
        shares = found.table["probability_ill"].to_numpy()[places]
        np.testing.assert_array_equal(shares, expected[:, 0])
    assert found.table["row"].to_pylist() == list(range(1, 31))


def test_the_column_of_the_site_may_differ_in_case(models):
    rows = changed()
    found, same = (
        predict_file(models, {**rows, name: ["north", "south"] * 2}).table
        for name in ("HOSPITAL ", "hospital")
    )
    assert found["probability_ill"].to_pylist() == same["probability_ill"].to_pylist()


def test_a_row_without_a_value_keeps_its_place_unless_it_is_after_the_last(north, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("age;sex\n50;f\n;\n70;m\n;\n;\n")
    expected = north.predict_rows({"age": [50, None, 70], "sex": ["f", None, "m"]}).values
    np.testing.assert_array_equal(north.predict_rows(path).values, expected)


@pytest.mark.parametrize("by_site", [True, False])
def test_a_row_of_sums_at_the_end_of_a_file_is_not_predicted(models, by_site, tmp_path):
    rows = {**raw_rows(30, "all"), "hospital": [SITES[place % 3] for place in range(30)]}
    ages = [age for age in rows["age"] if age is not None]
    footer = dict.fromkeys(rows) | {"hospital": "Total", "age": sum(ages)}
    summed = {name: [*values, footer[name]] for name, values in rows.items()}
    plain, path = tmp_path / "plain.csv", tmp_path / "rows.csv"
    write_csv(plain, rows)
    write_csv(path, summed)
    site = None if by_site else SITES[0]
    found = predict_file(models, path, site=site)
    assert found.table.equals(predict_file(models, plain, site=site).table)
    remark = 'row 32, "Total", sums the others up; left out.'
    assert remark in found.remarks
    with pytest.raises(DataError, match=f"^{remark} With --strict"):
        predict_file(models, path, site=site, strict=True)
    # Rows in memory are each answered, and one number may be the mean by chance.
    assert len(predict_file(models, summed, site=SITES[0]).table) == 31
    path.write_text("age\n40\n50\n60\n50\n")
    assert len(predict_file(models, path, site=SITES[0]).table) == 4


def test_a_new_site_has_no_model_but_may_use_that_of_another(models):
    rows = {**changed(), "hospital": ["north", "south", "west", "west"]}
    with pytest.raises(RequestError, match=r'no model for the site "west" in row 3; .*--site'):
        predict_file(models, rows)
    found = predict_file(models, rows, site="south", keep=["hospital"])
    assert found.table["hospital"].to_pylist() == rows["hospital"]
    assert '3 rows of another site than "south"' in found.remarks[0]


def test_rows_without_a_site_need_one_to_be_named(models):
    with pytest.raises(RequestError, match=r"do not name their site.*--site \"St. Mary / east\""):
        predict_file(models, changed())
    with pytest.raises(DataError, match="names no site in row 2"):
        predict_file(models, changed(hospital=["north", None, "south", "south"]))


def test_columns_are_kept_beside_the_predictions(models):
    found = predict_file(models / "north.md", changed(patient=[7, 8, 9, 10]), keep=["patient"])
    assert found.table["patient"].to_pylist() == [7, 8, 9, 10]
    with pytest.raises(
        RequestError, match='--keep: the rows have no column "patent"; did you mean'
    ):
        predict_file(models / "north", changed(patient=[7, 8, 9, 10]), keep=["patent"])
    with pytest.raises(RequestError, match='the predictions have a column "prediction" themselves'):
        predict_file(models / "north", changed(prediction=[7, 8, 9, 10]), keep=["prediction"])


def test_another_text_may_mean_a_missing_value(models):
    rows = changed(chol=["200", "high", "210", "220"])
    found = predict_file(models / "north", rows, na=["high"])
    assert "a missing value was filled in 1 row" in found.remarks[0]


def test_names_of_sites_are_safe_names_of_files(models):
    assert set(sites_in(models)) == set(SITES)
    names = ["../x", "a/b", ".hidden", "x.raw", "a\\b", "100%", "con:", "Zürich", "\n", "日本", ""]
    made = [file_name(name) for name in names]
    assert len(set(made)) == len(names)
    assert not any(set(name) & set('/\\:*?"<>|\n') or name.startswith(".") for name in made)


def test_wrong_models_are_refused_in_a_sentence(models, tmp_path):
    with pytest.raises(RequestError, match=r'has no model of "nroth"; did you mean "north"'):
        open_model(models, "nroth")
    with pytest.raises(RequestError, match='is the model of "north", and --site names "south"'):
        open_model(models / "north", "south")
    with pytest.raises(StateError, match="holds no models; make some with"):
        open_model(tmp_path)
    with pytest.raises(StateError, match="does not exist; create it with"):
        open_model(tmp_path / "nothing")


class OwnNetwork(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.head = nn.Linear(inputs, 2)

    def forward(self, x):
        return self.head(x)


def test_a_network_of_ones_own_is_run_from_its_graph(tmp_path):
    data = federation()
    task = motet.Task(lambda: OwnNetwork(data.shape[0]))
    run = motet.run(motet.FedAvgFT(), task, data, rounds=1)
    motet.export(run, "north", tmp_path / "north", onnx=True)
    opened, _ = open_model(tmp_path / "north")
    assert isinstance(opened, GraphModel)
    rows = raw_rows(9, "new")
    own = motet.load_predictor(tmp_path / "north", task=task).predict_rows(rows)
    shares = predict_file(tmp_path / "north", rows).table["probability_ill"].to_numpy()
    np.testing.assert_allclose(shares, own.values[:, 0], rtol=1e-5, atol=1e-6)
    motet.export(run, "north", tmp_path / "north", onnx=False)
    with pytest.raises(RequestError, match="its network or method is your own"):
        open_model(tmp_path / "north")


def test_predictions_are_written_and_read_back(north, tmp_path):
    found = north.predict_rows(raw_rows(5, "new"))
    found.write(tmp_path / "p.parquet")
    assert parquet.read_table(tmp_path / "p.parquet").equals(found.to_table())
    found.write(tmp_path / "p.tsv")
    first = (tmp_path / "p.tsv").read_text().splitlines()[0].replace('"', "").split("\t")
    assert first == ["row", "prediction", "probability_ill", "probability_well", "remarks"]
    with pytest.raises(
        RequestError, match=r'written to a \.csv, \.tsv or \.parquet file; got "p\.x'
    ):
        found.write(tmp_path / "p.xlsx")
