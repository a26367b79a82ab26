"""`motet export`: a client's model out of a run directory."""

import json

import onnxruntime
import pytest
import torch
from torch.testing import assert_close

from motet._export.predictors import load_predictor
from motet._export.saved import saved_run

TINY = ("--method", "fedper", "--model", "mlp", "--clients", 4, "--rounds", 2, "--quiet")


@pytest.fixture
def run(motet, tmp_path):
    assert motet("run", *TINY, "--out", "run").code == 0
    return tmp_path / "run"


def files(directory):
    shared = (".sqlite-shm", ".sqlite-wal")  # SQLite's own, which come and go with readers
    found = [p for p in directory.rglob("*") if p.is_file() and not p.name.endswith(shared)]
    return {str(p.relative_to(directory)): p.read_bytes() for p in found}


def test_the_files_predict_as_the_saved_run_does(motet, run, tmp_path):
    before = files(run)
    done = motet("export", "run", "--client", "2", "-o", "models/two.onnx", "--no-references")
    assert done.code == 0, done.err
    assert done.out.split() == [f"models/two.{kind}" for kind in ("safetensors", "md", "onnx")]
    assert done.err == ""
    assert files(run) == before
    with saved_run(run) as (experiment, saved):
        assert saved.rounds_done == experiment.run.rounds == 2
        x = saved.setting.federation.examples("2", "test").x
        expected = saved.predict("2", x)
        assert len(saved.notes) == 0
    loaded = load_predictor(tmp_path / "models" / "two.safetensors")
    assert_close(loaded.predict(x), expected)
    session = onnxruntime.InferenceSession(tmp_path / "models" / "two.onnx")
    (answer,) = session.run(None, {"x": x.numpy()})
    assert_close(torch.from_numpy(answer), expected, rtol=0, atol=1e-6)


def test_json_says_what_was_written_and_what_it_is(motet, run):
    done = motet("export", "run", "--client", "1", "-o", "one", "--no-onnx", "--json")
    said = json.loads(done.out)
    assert said["files"] == {"tensors": "one.safetensors", "card": "one.md"}
    assert said["without_onnx"] == "it was not requested."
    assert said["client"] == "1"
    assert said["scores"]["test"]["metric"] == "accuracy"
    assert said["data"]["hash"] in (run / "data.json").read_text()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("run", "--client", "22", "-o", "x"), 'no client is called "22"; did you mean "2"'),
        (("nowhere", "--client", "2", "-o", "x"), "nowhere holds no run"),
        (("run", "-o", "x"), "name a client with --client ID, or export all of them with --all"),
        (("run", "--all", "--client", "2", "-o", "x"), "name a client with --client ID, or"),
        (("run", "--client", "2"), "Missing option '--out'"),
        (("run", "--client", "2", "-o", "run/config.toml/x"), "cannot be written"),
    ],
    ids=["client", "directory", "no-client", "both", "no-file", "unwritable"],
)
def test_a_wrong_request_is_one_sentence(motet, run, arguments, sentence):
    done = motet("export", *arguments, "--no-onnx")
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("error: ")
    assert sentence in done.err
    assert done.err.count("\n") == 1


def test_a_run_that_saved_nothing_has_nothing_to_export(motet, run):
    for path in (run / "checkpoint").iterdir():
        path.unlink()
    done = motet("export", "run", "--client", "2", "-o", "x")
    assert done.code == 2
    assert "there is no checkpoint in run" in done.err


def test_a_comparison_has_no_models_to_export(motet):
    asked = ("--methods", "local", "--model", "logistic", "--clients", 3, "--rounds", 1)
    assert motet("compare", *asked, "--out", "both", "--quiet").code == 0
    done = motet("export", "both", "--client", "2", "-o", "x")
    assert done.code == 2
    assert "both holds a comparison, which saves scores but not models" in done.err
