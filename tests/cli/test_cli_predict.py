"""From a table to predictions on the command line, and to a service in a process of its own."""

import csv
import json
import os
import signal
import socket

import httpx
import onnxruntime
import pytest
from hospital_world import raw_rows
from pyarrow import parquet

import motet as library

HEAD = ["hospital", "age", "chol", "sex", "outcome"]


def write_visits(path):
    """Two hospitals; the outcome depends on age."""
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(HEAD)
        for site in ("north", "Süd / 2"):
            rows = raw_rows(60, site)
            for age, chol, sex in zip(rows["age"], rows["chol"], rows["sex"], strict=True):
                ill = "ill" if (age or 50) > 55 else "well"
                table.writerow([site, age, "?" if chol is None else chol, sex, ill])


def table_of(folder):
    """Flags of the table, its columns and a small network."""
    told = ["--table", folder / "visits.csv", "--client-column", "hospital", "--target", "outcome"]
    told += ["--categorical", "sex", "--missing", "median", "--standardize", "federation"]
    return [*told, "--set", "model.hidden=[4]", "--quiet"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run on a table, and the models of both hospitals with graphs."""
    from motet._cli.main import call

    folder = tmp_path_factory.mktemp("trained")
    write_visits(folder / "visits.csv")
    told = [*table_of(folder), "--method", "fedper", "--rounds", 3, "--out", folder / "run"]
    for command in (["run", *told], ["export", folder / "run", "--all", "-o", folder / "models"]):
        assert call([str(word) for word in command]) == 0
    return folder


@pytest.fixture
def rows(tmp_path):
    """Rows of new patients, with a patient number and without an outcome."""
    with (tmp_path / "rows.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, delimiter=";")
        table.writerow(["patient", "hospital", "age", "chol", "sex"])
        table.writerow(["p1", "north", "63,5", "233", "m"])
        table.writerow(["p2", "Süd / 2", "41,0", "?", " F"])
        table.writerow(["p3", "north", "500,0", "210", "x"])
    return tmp_path / "rows.csv"


def read_csv(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_run_keeps_the_schema_and_every_export_carries_it(trained):
    kept = json.loads((trained / "run" / "data.json").read_text())["schema"]
    schema = library.data.Schema.from_dict(kept)
    assert [column.name for column in schema.columns] == ["age", "chol", "sex"]
    for site, name in (("north", "north"), ("Süd / 2", "Süd %2F 2")):
        predictor = library.load_predictor(trained / "models" / f"{name}.safetensors")
        assert predictor.schema == schema.at(site)
        for graph in (f"{name}.onnx", f"{name}.raw.onnx"):
            session = onnxruntime.InferenceSession(trained / "models" / graph)
            about = json.loads(session.get_modelmeta().custom_metadata_map["motet"])
            assert library.data.Schema.from_dict(about["schema"]) == schema.at(site)
        card = (trained / "models" / f"{name}.md").read_text()
        assert "| `chol` | number |" in card
        assert "licence of the data" in card
        assert "Local (trained on the rows of this client alone)" in card
        assert "FedAvg (one model for all clients)" in card
    assert "[card](S%C3%BCd%20%252F%202.md)" in (trained / "models" / "README.md").read_text()


def test_raw_rows_become_predictions_by_the_model_of_each_site(motet, trained, rows):
    done = motet("predict", trained / "models", rows, "-o", "out.csv", "--keep", "patient")
    assert done.code == 0, done.err
    assert done.out == "out.csv\n"
    found = read_csv(rows.parent / "out.csv")
    assert [row["patient"] for row in found] == ["p1", "p2", "p3"]
    for row in found:
        shares = {label: float(row[f"probability_{label}"]) for label in ("ill", "well")}
        assert row["prediction"] == max(shares, key=shares.get)
        assert sum(shares.values()) == pytest.approx(1)
    assert found[0]["remarks"] == ""
    assert "age: outside the training range" in found[2]["remarks"]
    assert 'warning: north: column "age": 1 row outside the range' in done.err
    assert "3 rows predicted." in done.err


def test_the_same_rows_give_the_same_answers_from_the_graph_of_raw_columns(motet, trained, rows):
    model = trained / "models" / "north"
    done = motet("predict", model, rows, "--json")
    found = json.loads(done.out)["predictions"]
    session = onnxruntime.InferenceSession(f"{model}.raw.onnx")
    inputs = json.loads(session.get_modelmeta().custom_metadata_map["inputs"])
    assert inputs == {"numbers": ["age", "chol"], "categories": ["sex"]}
    import numpy as np

    numbers = np.array([[63.5, 233], [41, np.nan], [500, 210]])
    categories = np.array([["m"], ["f"], ["x"]], object)
    (answer,) = session.run(None, {"numbers": numbers, "categories": categories})
    ours = [[row["probability_ill"], row["probability_well"]] for row in found]
    np.testing.assert_allclose(ours, answer, rtol=1e-5, atol=1e-6)


def test_predictions_go_to_the_standard_output_or_to_parquet(motet, trained, rows):
    asked = ("predict", trained / "models", rows, "--site", "north", "--quiet")
    shown = motet(*asked)
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.splitlines()[0].replace('"', "").startswith("row,prediction,probability_ill")
    assert motet(*asked, "-o", "out.parquet").code == 0
    assert len(parquet.read_table(rows.parent / "out.parquet")) == 3


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("models/nroth", "rows.csv"), "nroth.safetensors does not exist; create it with"),
        (
            ("models", "rows.csv", "--site", "nroth"),
            'has no model of "nroth"; did you mean "north"',
        ),
        (("models", "none.csv"), "there is no table at none.csv"),
        (("models/north", "rows.csv", "-o", "x.doc"), 'or .parquet file; got "x.doc"'),
        (("models/north", "rows.csv", "--keep", "p"), 'have no column "p"'),
        (("models/north", "rows.csv", "--strict"), "With --strict"),
        (("models/north", "wrong.csv"), "none of the 3 columns that the model needs"),
        (("models/north", "text.csv"), 'row 3 has "high"'),
    ],
    ids=["model", "site", "rows", "kind", "keep", "strict", "columns", "text"],
)
def test_a_wrong_request_is_one_sentence(motet, trained, rows, arguments, sentence):
    folder = rows.parent
    (folder / "wrong.csv").write_text("a,b\n1,2\n3,4\n")
    (folder / "text.csv").write_text("age,chol,sex\n50,200,f\n50,high,f\n")
    (folder / "models").symlink_to(trained / "models")
    done = motet("predict", *arguments)
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("error: ")
    assert sentence in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("last", "advice", "said"),
    [
        ("50,high,f", "--na high", "a missing value was filled in 1 row"),
        ("50,200,f,9", "--bad-rows skip", "1 row of rows.csv with too many or too few cells"),
    ],
)
def test_the_advice_of_a_refusal_works_when_followed(last, advice, said, motet, trained, tmp_path):
    (tmp_path / "rows.csv").write_text(f"age,chol,sex\n50,200,f\n{last}\n")
    refused = motet("predict", trained / "models" / "north", "rows.csv")
    assert f"`{advice}`" in refused.err
    done = motet("predict", trained / "models" / "north", "rows.csv", *advice.split())
    assert done.code == 0
    assert said in done.err


# ---- Cards against other results ----------------------------------------------------------------


def test_a_card_takes_its_references_from_a_comparison_on_the_same_split(motet, trained):
    asked = ["--methods", "fedper", "--rounds", 2, "--seeds", 2, "--out", "table"]
    done = motet("compare", *table_of(trained), *asked)
    assert done.code == 0, done.err
    export = ("export", trained / "run", "--client", "north", "-o", "north", "--no-onnx", "--json")
    said = json.loads(motet(*export, "--against", "table").out)
    assert [(r["method"], r["seeds"], r["round"]) for r in said["references"]] == [
        ("local", 2, 2),
        ("fedavg", 2, 2),
    ]
    compared = library.Comparison.read("table")
    values = [row.evaluation["north"].value for row in compared.of("local")]
    assert said["references"][0]["value"] == pytest.approx(sum(values) / 2)
    none = json.loads(motet(*export, "--no-references").out)
    assert none["references"] == []
    refused = motet(*export, "--against", trained / "models")
    assert "holds no finished run or comparison" in refused.err
    other = motet("run", "--method", "local", "--rounds", 1, "--out", "other", "--quiet")
    assert other.code == 0
    assert "used another split of the data" in motet(*export, "--against", "other").err


# ---- A service in a process of its own ----------------------------------------------------------


def test_a_service_answers_until_it_is_stopped(process, trained, tmp_path):
    limit = ("--max-bytes", 5000)
    served = process("serve", trained / "models", "--site", "north", "--port", 0, "--json", *limit)
    try:
        url = json.loads(served.stdout.readline())["url"]
        with httpx.Client(base_url=url, timeout=30) as client:
            assert client.get("/health").json()["status"] == "ok"
            row = {"age": 63.5, "chol": 233, "sex": "m"}
            answer = client.post("/predict", json={"rows": [row]})
            assert answer.status_code == 200
            expected = library.load_predictor(trained / "models" / "north").predict_rows([row])
            found = answer.json()["predictions"][0]
            assert found["label"] == expected.best[0]
            assert found["probabilities"]["ill"] == pytest.approx(expected.values[0, 0], abs=1e-6)
            assert client.post("/predict", content=b" " * 5001).status_code == 413
            assert client.get("/openapi.json").json()["paths"].keys() >= {"/predict", "/schema"}
            assert "swagger" in client.get("/docs").text
            other = process("serve", trained / "models" / "north", "--port", url.rsplit(":", 1)[1])
            _, said = other.communicate(timeout=60)
            assert other.returncode == 2
            assert "cannot listen on 127.0.0.1" in said
            assert "Choose another one with --port" in said
        served.send_signal(signal.SIGTERM if os.name == "posix" else signal.SIGINT)
        out, err = served.communicate(timeout=60)
        assert (served.returncode, out, err) == (0, "", "")
    finally:
        served.kill()
        served.wait()
    with socket.socket() as probe:
        host, _, port = url.removeprefix("http://").partition(":")
        assert probe.connect_ex((host, int(port))) != 0


def test_missing_packages_of_the_service_are_named(motet, trained, monkeypatch):
    from motet._cli import serve

    monkeypatch.setattr(serve, "find_spec", lambda name: None if name == "uvicorn" else 1)
    done = motet("serve", trained / "models" / "north")
    assert done.code == 2
    assert done.err == "error: `motet serve` needs uvicorn: pip install 'motet[serve]'.\n"
