"""The web service of a model: what it answers, what it refuses, and what it never says."""

import asyncio
import json
import math
import random

import httpx
import numpy as np
import pytest
from hospital_world import federation, finished, raw_rows

import motet
from motet._export.opening import open_model
from motet._serving.limits import BodyLimit
from motet._serving.service import Limits, make_service

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    for name, method, data in (
        ("classes", motet.KNNPer(), federation()),
        ("values", motet.FedPer(), federation("regression", fills=False)),
    ):
        motet.export(finished(method, data), "north", folder / name, onnx=False)
    return folder


def service(path, **settings):
    return make_service(*open_model(path), limits=Limits(max_bytes=4000, max_rows=5), **settings)


@pytest.fixture(scope="module")
def app(exported):
    return service(exported / "classes")


def ask(app, method, path, **settings):
    async def once():
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://motet") as client:
            return await client.request(method, path, **settings)

    return asyncio.run(once())


def predict(app, *rows):
    return ask(app, "POST", "/predict", json={"rows": list(rows)})


def as_json(columns):
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return json.loads(json.dumps(rows, default=str))


def test_it_answers_as_the_exported_model_does(app, exported):
    columns = raw_rows(5, "served")
    expected = motet.load_predictor(exported / "classes").predict_rows(columns)
    answer = predict(app, *as_json(columns))
    assert answer.status_code == 200
    found = answer.json()["predictions"]
    assert [one["label"] for one in found] == expected.best
    shares = [[one["probabilities"][label] for label in ("ill", "well")] for one in found]
    np.testing.assert_allclose(shares, expected.values, rtol=1e-6)
    assert [one["row"] for one in found] == [0, 1, 2, 3, 4]


def test_a_regression_answers_with_values(exported):
    app, columns = service(exported / "values"), raw_rows(3, "served", fills=False)
    expected = motet.load_predictor(exported / "values").predict_rows(columns).values
    found = predict(app, *as_json(columns)).json()["predictions"]
    np.testing.assert_allclose([one["value"] for one in found], expected, rtol=1e-6)


ROW = {"age": 50, "chol": 200, "sex": "f", "cp": 1, "grade": "low", "visit": "2020-01-31"}


def test_repairs_are_remarks_of_the_reply_and_of_the_row(app):
    answer = predict(app, ROW, {**ROW, "chol": None, "sex": "x"}, {**ROW, "age": 500}).json()
    assert [len(one["remarks"]) for one in answer["predictions"]] == [0, 2, 1]
    assert answer["predictions"][2]["remarks"] == ["age: outside the training range"]
    assert any("such as 500 in rows[2]; check the unit" in said for said in answer["remarks"])


def test_a_key_that_no_column_has_is_ignored_and_a_missing_one_is_said(app):
    answer = predict(app, {k: v for k, v in ROW.items() if k != "age"} | {"agee": 50}).json()
    assert any('"age" is not in the table' in said or '"age"' in said for said in answer["remarks"])


@pytest.mark.parametrize(
    ("body", "code", "sentence"),
    [
        ({"rows": []}, 422, "rows: expected at least one row; got none"),
        ({"rows": [ROW] * 6}, 422, "rows: expected at most 5 rows; got 6"),
        ({"rows": [{**ROW, "age": "old"}]}, 422, 'rows[0].age: expected a number; got "old"'),
        ({"rows": [ROW, {**ROW, "sex": ["f"]}]}, 422, 'rows[1].sex: expected text; got ["f"]'),
        ({"rows": [{**ROW, "visit": "soon"}]}, 422, 'dates such as 1970-01-01; rows[0] has "soon"'),
        ({"row": [ROW]}, 422, "rows is missing."),
        ([ROW], 422, "the body: expected an object; got ["),
        (b'{"rows": [{"age": NaN}]}', 422, "rows[0].age: expected a finite number; got NaN"),
        (b'{"rows": [{"age": 1e999}]}', 422, "rows[0].age: expected a finite number"),
        (b'{"rows": [', 422, "the body is not valid JSON"),
        (b"\xff\xfe\x00", 400, "JSON"),
        (b"[" * 3000, 400, "JSON"),
        (b" " * 4001, 413, "the request body is larger than 4000 bytes"),
    ],
    ids=[
        "none", "many", "text", "list", "date", "key", "array", "nan", "infinite", "cut", "bytes",
        "deep", "large",
    ],
)  # fmt: skip
def test_a_wrong_request_is_refused_in_a_sentence(app, body, code, sentence):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = ask(app, "POST", "/predict", content=content, headers=JSON)
    assert answer.status_code in ({code, 422} if code == 400 else {code})
    assert sentence in answer.json()["detail"]
    assert "Traceback" not in answer.text


def test_a_required_column_is_missing_by_name(exported):
    app = service(exported / "values")
    answer = predict(app, {k: v for k, v in ROW.items() if k != "chol"})
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith("rows[0].chol is missing. Send a value")


# Values that a caller may send by mistake or on purpose.
HOSTILE = (
    None, True, False, 0, -1, 10**400, 1e308, 5e-324, 2**63, 2**64, 1.5, math.nan, -math.inf, "",
    " ", "f", "M ", "x" * 200, "\0", "\ud800", "NaN", "inf", "1,5", "12 kg", "2023-13-45",
    "11.03.2023", "9999-12-31", "2020-01-31T25:00", [], [1], [[[[]]]], {}, {"age": {"b": [1]}},
    "=1+1", "<b>", "low",
)  # fmt: skip
NAMES = (*ROW, "AGE", " sex ", "hospital", "outcome", "column_0", "\ud800")
DAMAGED = (
    b"", b"null", b"{'rows': []}", b'{"rows": [{"age": +1}]}', b'{"rows": [{"age": 0x1}]}',
    b'{"rows": [{"sex": "\xff\xfe"}]}', '{"rows": []}'.encode("utf-16"), b'{"rows": [{}]} x',
    b'{"rows": [{"age": ' + b"9" * 3900 + b"}]}", b'{"a":' * 700, b'{"rows": [], "rows": [{}]}',
)  # fmt: skip


def hostile_bodies():
    """Bodies with one wrong value each at every place, several at random, and damaged ones."""
    for value in HOSTILE:
        yield from (json.dumps(body).encode() for body in (value, {"rows": value}, [value]))
        yield json.dumps({"rows": [value]}).encode()
        yield from (json.dumps({"rows": [ROW, {**ROW, name: value}]}).encode() for name in NAMES)
    draw = random.Random(0)
    for _ in range(150):
        rows = [
            {name: draw.choice(HOSTILE) for name in draw.sample(NAMES, draw.randrange(5))} | kept
            for kept in draw.choices([ROW, {}, {"age": 50}], k=draw.randrange(4))
        ]
        body = bytearray(json.dumps({"rows": rows}).encode())
        if draw.random() < 0.3:
            body[draw.randrange(len(body))] = draw.randrange(256)
        yield bytes(body)


def asked(app, bodies, **headers):
    async def all_of_them():
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://motet") as client:
            return [
                await client.post("/predict", content=body, headers={**JSON, **headers})
                for body in bodies
            ]

    return asyncio.run(all_of_them())


@pytest.mark.parametrize(("name", "every"), [("classes", 6), ("values", 9)])
def test_hostile_bodies_are_answered_row_by_row_or_refused_in_a_sentence(exported, name, every):
    app, bodies = service(exported / name), [*DAMAGED, *list(hostile_bodies())[::every]]
    for body, answer in zip(bodies, asked(app, bodies), strict=True):
        if answer.status_code == 200:
            found = answer.json()["predictions"]
            assert [one["row"] for one in found] == list(range(len(json.loads(body)["rows"])))
            continue
        said = answer.json()["detail"]
        assert answer.status_code in (400, 413, 422), (body, said)
        assert said.endswith("."), (body, said)
        assert any(word in said for word in ("rows", "body")), (body, said)
        # A caller has no flags, and does not know Python.
        assert not any(word in said for word in ("--na", "builtins", "None", "codec")), (body, said)
        assert len(said) < 2000


def test_a_row_without_a_value_keeps_its_place(app):
    found = predict(app, {}, ROW, {}).json()["predictions"]
    assert [one["row"] for one in found] == [0, 1, 2]
    assert found[1]["remarks"] == []
    assert found[0]["label"] == found[2]["label"]


def test_rows_without_any_column_are_refused_with_the_columns(app):
    answer = predict(app, {}, {"agee": 50})
    assert answer.status_code == 422
    assert "rows: expected at least one of the columns age, chol" in answer.json()["detail"]


def test_a_key_in_another_case_is_its_column(app):
    other = {name.upper(): value for name, value in ROW.items()}
    found = predict(app, ROW, other, {**ROW, "AGE": 80}).json()["predictions"]
    assert found[0]["probabilities"] == found[1]["probabilities"] == found[2]["probabilities"]


def test_keys_of_no_column_cost_nothing(app, monkeypatch):
    read = []
    seen = motet._serving.service.read_rows
    monkeypatch.setattr(
        motet._serving.service, "read_rows", lambda *a: read.append(a[0]) or seen(*a)
    )
    assert predict(app, *({**ROW, f"key {n}": [n]} for n in range(5))).status_code == 200
    assert set(read[0]) == set(ROW)


@pytest.mark.parametrize("kind", ["text/plain", "", "application/x-www-form-urlencoded"])
def test_a_body_that_is_not_said_to_be_json_is_refused_with_the_header_to_send(app, kind):
    [answer] = asked(app, [json.dumps({"rows": [ROW]}).encode()], **{"content-type": kind})
    assert answer.status_code == 422
    assert "Content-Type: application/json" in answer.json()["detail"]


def test_a_strict_service_refuses_what_it_would_repair(exported):
    app = service(exported / "classes", strict=True)
    assert predict(app, ROW).status_code == 200
    answer = predict(app, {**ROW, "sex": "x"})
    assert answer.status_code == 422
    assert 'such as "x" in rows[0]' in answer.json()["detail"]


def test_a_body_without_a_declared_size_is_counted_while_it_arrives(app):
    async def endless():
        for _ in range(1000):
            sent.append(1)
            yield b" " * 100

    sent = []
    answer = ask(app, "POST", "/predict", content=endless(), headers=JSON)
    assert answer.status_code == 413
    assert len(sent) < 60


def test_a_body_that_does_not_arrive_is_given_up():
    async def scenario():
        async def app(scope, receive, send):
            await receive()

        async def receive():
            await asyncio.sleep(60)

        limited = BodyLimit(app, max_bytes=10, seconds=0.01)
        with pytest.raises(Exception, match=r"did not arrive within 0\.01 s") as refused:
            await limited({"type": "http", "headers": []}, receive, None)
        assert refused.value.status_code == 408

    asyncio.run(scenario())


def test_the_description_lists_the_columns_of_the_schema(app):
    described = ask(app, "GET", "/openapi.json").json()["components"]["schemas"]["Row"]
    assert set(described["properties"]) == set(ROW)
    assert "years" in described["properties"]["age"]["description"]
    assert "f, m" in described["properties"]["sex"]["description"]
    examples = {name: p["examples"][0] for name, p in described["properties"].items()}
    answer = predict(app, examples)
    assert answer.status_code == 200
    assert answer.json()["remarks"] == []


def test_required_columns_are_those_that_cannot_be_filled(app, exported):
    def required(one):
        return (
            ask(one, "GET", "/openapi.json").json()["components"]["schemas"]["Row"].get("required")
        )

    assert required(app) is None
    assert set(required(service(exported / "values"))) == set(ROW)


def test_the_pages_need_no_other_server(app):
    page = ask(app, "GET", "/docs")
    assert page.status_code == 200
    assert "http://" not in page.text
    assert "https://" not in page.text
    for asset in ("swagger-ui-bundle.js", "swagger-ui.css"):
        assert ask(app, "GET", f"/static-offline-docs/{asset}").status_code == 200
    assert ask(app, "GET", "/").headers["location"] == "docs"


def test_it_says_what_it_is_and_nothing_about_the_training_rows(app, exported):
    health = ask(app, "GET", "/health").json()
    assert health["status"] == "ok"
    assert health["model"]["client"] == "north"
    shown = ask(app, "GET", "/schema").json()
    assert [column["name"] for column in shown["columns"]] == list(ROW)
    assert shown["target"]["labels"] == ["ill", "well"]
    everything = json.dumps(shown) + json.dumps(health)
    for private in ("fills", "scaling", "scores", "tensor", "data", "hash", "south"):
        assert private not in everything


def test_a_name_from_the_data_cannot_become_markup(exported):
    model, schema = open_model(exported / "classes")
    hostile = type(model)(
        model.method, model.task, model.personal, {**model.about, "client": "<script>alert(1)"}
    )
    app = make_service(hostile, schema)
    assert "<script>alert" not in ask(app, "GET", "/docs").text
