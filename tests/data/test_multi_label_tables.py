"""Tables with several targets: columns of yes and no, predicted together."""

from __future__ import annotations

import asyncio
import json

import httpx
import numpy as np
import onnxruntime
import pytest

import motet
from motet._cli.main import call
from motet._export.opening import open_model
from motet._serving.service import make_service
from motet.config import experiment_from_dict
from motet.data import Schema, Split, from_table
from motet.errors import DataError, RequestError

ROWS = 60
TARGETS = ("stroke", "death", "Fall")
WRITTEN = (("0", "1"), ("no", "Yes"), ("FALSE", "TRUE"))


def wanted():
    return np.random.default_rng(0).integers(0, 2, (ROWS, 3))


def table(written=WRITTEN, y=None):
    y = wanted() if y is None else y
    lines = [",".join(("site", "age", "sex", *TARGETS))]
    for n, row in enumerate(y):
        cells = (words[value] for words, value in zip(written, row, strict=True))
        lines.append(",".join(("nsw"[n % 3], str(40 + 7 * n % 31), "fm"[n // 2 % 2], *cells)))
    return "\n".join(lines) + "\n"


def opened(path, text, **options):
    path.write_text(text)
    asked = {"client": "site", "target": TARGETS, "categorical": ["sex"], "split": Split(0, 0)}
    return from_table(path, **{**asked, **options})


def targets(data):
    return data.y.take(np.arange(len(data.y)))


def test_answers_are_read_in_any_spelling(tmp_path):
    data = opened(tmp_path / "t.csv", table())
    np.testing.assert_array_equal(targets(data), wanted())
    assert data.features == ("age", "sex=f", "sex=m")
    assert data.schema.target.columns == TARGETS
    assert Schema.from_dict(json.loads(json.dumps(data.schema.to_dict()))) == data.schema
    assert "3 labels" in repr(data)
    other = opened(
        tmp_path / "t.csv", table((("ill", "well"), *WRITTEN[1:])), labels=["ill=0", "well=1"]
    )
    np.testing.assert_array_equal(targets(other), wanted())


@pytest.mark.parametrize(
    ("text", "options", "sentence"),
    [
        (
            table((("0", "maybe"), *WRITTEN[1:])),
            {},
            r'"stroke" should hold 1 .yes. or 0 .no.*has "maybe".*--label maybe=1',
        ),
        (table((("", "1"), *WRITTEN[1:])), {}, "has no target.*--drop-missing-target"),
        (table(), {"kind": "regression"}, "kind does not apply. Leave out --kind"),
        (table(), {"event": "death"}, "event does not apply. Leave out --event"),
        (table(), {"target": ["stroke", "stroke"]}, "named twice"),
        (table(), {"target": ["stroke", "site"]}, "cannot be both the client and the target"),
        (table(), {"target": ["stroke", "dead"]}, 'no column "dead"; did you mean "death"'),
        (table(), {"target": []}, "expected a column to predict"),
        (table(), {"labels": ["1=ill"]}, 'such as --label ill=1; got the label "ill"'),
    ],
)
def test_what_is_no_answer_is_refused_in_a_sentence(text, options, sentence, tmp_path):
    with pytest.raises((DataError, RequestError), match=sentence):
        opened(tmp_path / "t.csv", text, **options)


def test_rows_without_an_answer_are_dropped_whole(tmp_path):
    data = opened(tmp_path / "t.csv", table((("", "1"), *WRITTEN[1:])), drop_missing_target=True)
    np.testing.assert_array_equal(targets(data), wanted()[wanted()[:, 0] == 1])


def test_the_flag_may_be_repeated(tmp_path, capsys):
    (tmp_path / "t.csv").write_text(table())
    asked = ["data", "--table", str(tmp_path / "t.csv"), "--client-column", "site", "--categorical"]
    assert call([*asked, "sex", "--target", "stroke", "--target=death", "--drop", "Fall"]) == 0
    said = capsys.readouterr().out
    assert "2 labels" in said
    assert 'Targets "stroke" and "death", each yes or no' in said
    assert call([*asked, "sex", "--target", "stroke", "--target", "stroke"]) == 0
    assert "2 classes" in capsys.readouterr().out


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("labels")
    (folder / "t.csv").write_text(table())
    data = {"table": str(folder / "t.csv"), "client": "site", "target": list(TARGETS)}
    tables = {"method": {"name": "fedper"}, "data": {**data, "categorical": ["sex"]}}
    tables |= {"run": {"rounds": 1, "backend": "serial"}, "model": {"name": "mlp", "hidden": [4]}}
    experiment = experiment_from_dict(tables)
    run = experiment.start(experiment.federation())
    run.advance()
    motet.export(run, "n", folder / "n")
    return folder / "n"


RAW = [{"age": 61.5, "sex": "m"}, {"age": 45, "sex": "F"}]


def test_all_forms_of_the_model_agree_on_raw_rows(exported):
    found = motet.load_predictor(exported).predict_rows(RAW)
    assert found.labels == TARGETS
    assert found.values.shape == (2, 3)
    for names, row in zip(found.true_labels, found.values, strict=True):
        assert names == [n for n, share in zip(TARGETS, row, strict=True) if share >= 0.5]
    assert found.to_table().column_names[2:5] == [f"probability_{name}" for name in TARGETS]
    session = onnxruntime.InferenceSession(f"{exported}.raw.onnx")
    given = {"numbers": np.array([[61.5], [45]]), "categories": np.array([["m"], ["f"]], object)}
    np.testing.assert_allclose(session.run(None, given)[0], found.values, atol=1e-6)
    assert (
        "whether each of these is true: `stroke`, `death`, `Fall`"
        in exported.with_suffix(".md").read_text()
    )


def test_the_service_names_the_labels_that_are_true(exported):
    async def ask():
        transport = httpx.ASGITransport(app=make_service(*open_model(exported)))
        async with httpx.AsyncClient(transport=transport, base_url="http://motet") as client:
            return (await client.post("/predict", json={"rows": RAW})).json()["predictions"]

    found = motet.load_predictor(exported).predict_rows(RAW)
    for said, names, row in zip(asyncio.run(ask()), found.true_labels, found.values, strict=True):
        assert said["labels"] == names
        assert list(said["probabilities"]) == list(TARGETS)
        np.testing.assert_allclose(list(said["probabilities"].values()), row)
