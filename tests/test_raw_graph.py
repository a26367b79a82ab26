"""ONNX graphs of raw columns encode rows exactly as `Schema.encode` does, and predict the same."""

from datetime import date, timedelta

import numpy as np
import onnx
import onnxruntime
import pytest
from hospital_world import COLUMNS, federation, finished, raw_rows, schema
from hypothesis import given
from hypothesis import strategies as st

import motet
from motet._export.raw_graph import encoder_graph, raw_inputs
from motet._export.samples import graph_inputs, sample_rows
from motet.data import Column, Scaling, Schema, Target
from motet.methods._catalog import method_class

PARTS = ("age", "year", "month", "day_of_year", "weekday", "days")


def session(model):
    written = model if isinstance(model, bytes) else model.SerializeToString()
    return onnxruntime.InferenceSession(written, providers=["CPUExecutionProvider"])


def encoded(made, rows):
    graph = encoder_graph(made, opset=18, ir_version=10)
    return session(graph).run(None, graph_inputs(made, rows))[0]


def test_the_date_parts_of_every_day_of_five_centuries_are_the_calendars():
    column = Column(name="day", kind="date", parts=PARTS, reference="2024-02-29")
    made = Schema(columns=(column,), target=Target(name="y", labels=("a", "b")))
    days = [date(1700, 1, 1) + timedelta(n) for n in range(500 * 365 + 121)]
    found = encoded(made, {"day": days})
    assert found[:, 1].tolist() == [day.year for day in days]
    assert found[:, 2].tolist() == [day.month for day in days]
    assert found[:, 3].tolist() == [day.timetuple().tm_yday for day in days]
    assert found[:, 4].tolist() == [day.weekday() for day in days]
    np.testing.assert_array_equal(found, made.encode({"day": days}).x)


TEXT = st.text(st.characters(categories=["L", "N", "P", "Zs"]), min_size=1, max_size=6)


def usable(text):
    from motet.data._tables.cells import MissingValues, tidy

    return tidy(text) == text and text not in MissingValues(("-9",))


@st.composite
def columns_and_rows(draw):
    """Any schema, and rows that it accepts."""
    columns = []
    for place in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["number", "categorical", "ordinal", "date"]))
        name, indicator = f"column {place}", draw(st.booleans())
        if kind == "number":
            columns.append(Column(name=name, indicator=indicator, low=-1e6, high=1e6))
        elif kind == "date":
            parts = tuple(draw(st.lists(st.sampled_from(PARTS), min_size=1, unique=True)))
            columns.append(
                Column(
                    name=name, kind=kind, parts=parts, indicator=indicator, reference="2000-01-01"
                )
            )
        else:
            from motet.data._tables.cells import same_spelling

            numbers = st.integers(-20, 20).map(str)
            texts = draw(
                st.lists(
                    draw(st.sampled_from([numbers, TEXT.filter(usable)])),
                    min_size=1,
                    max_size=5,
                    unique_by=same_spelling,
                ).filter(lambda found: "-9" not in found)
            )
            other = kind == "categorical" and draw(st.booleans())
            columns.append(
                Column(
                    name=name,
                    kind=kind,
                    categories=tuple(texts),
                    other=other,
                    indicator=indicator,
                )
            )
    wide = sum(len(column.features) for column in columns)
    number = st.floats(-100, 100, allow_subnormal=False)
    fills = draw(st.none() | st.tuples(*[number] * wide))
    scaling = draw(
        st.none()
        | st.builds(Scaling, st.tuples(*[number] * wide), st.tuples(*[st.floats(0.01, 100)] * wide))
    )
    return Schema(
        columns=tuple(columns),
        target=Target(name="y", labels=("a", "b")),
        na=("-9",),
        fills=fills,
        scaling=scaling,
        merge_spellings=draw(st.booleans()),
    )


@given(columns_and_rows())
def test_any_schema_is_encoded_by_its_graph_as_by_itself(made):
    rows = sample_rows(made, 30)
    for column in made.columns:
        if column.kind == "number" and made.fills is not None:
            rows[column.name][0] = -9.0
    np.testing.assert_allclose(encoded(made, rows), made.encode(rows).x, rtol=1e-6, atol=1e-6)


def test_categories_that_are_numbers_are_given_as_numbers_and_others_as_text():
    odd = Column(name="ward", kind="categorical", categories=("007", "12"))
    found = raw_inputs(schema(columns=(*COLUMNS, odd)))
    assert found.numbers == ("age", "chol", "cp", "visit")
    assert found.categories == ("sex", "grade", "ward")


# ---- With a predictor ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fedper", "knn-per", "flow", "fedem"])
def test_both_graphs_predict_as_motet_does(name, tmp_path):
    data = federation()
    run = finished(method_class(name)(), data)
    exported = motet.export(run, "north", tmp_path / "north", onnx=True)
    predictor = motet.load_predictor(exported.tensors)
    rows = raw_rows(50, "new")
    expected = predictor.predict_rows(rows).values
    x = predictor.schema.encode(rows).x
    (plain,) = session(exported.graph.read_bytes()).run(None, {"x": x})
    np.testing.assert_allclose(plain, expected, rtol=1e-5, atol=1e-5)
    graph = onnx.load(exported.raw_graph)
    onnx.checker.check_model(graph, full_check=True)
    inputs = graph_inputs(predictor.schema, rows)
    raw = session(graph)
    (answer,) = raw.run(None, inputs)
    np.testing.assert_allclose(answer, expected, rtol=1e-5, atol=1e-5)
    one = {name: values[:1] for name, values in inputs.items()}
    np.testing.assert_allclose(raw.run(None, one)[0], expected[:1], rtol=1e-5, atol=1e-5)


def test_a_missing_value_that_nothing_fills_gives_nan_and_not_a_guess(tmp_path):
    run = finished(motet.FedPer(), federation("regression", fills=False))
    exported = motet.export(run, "south", tmp_path / "south", onnx=True)
    predictor = motet.load_predictor(exported.tensors)
    rows = raw_rows(5, "new", fills=False)
    raw, inputs = session(exported.raw_graph.read_bytes()), graph_inputs(predictor.schema, rows)
    expected = predictor.predict_rows(rows).values
    (answer,) = raw.run(None, inputs)
    np.testing.assert_allclose(answer.reshape(-1), expected, rtol=1e-5, atol=1e-5)
    inputs["numbers"][2, 0] = np.nan
    (answer,) = raw.run(None, inputs)
    assert np.isnan(answer.reshape(-1)).tolist() == [False, False, True, False, False]


def test_the_graph_names_its_columns(tmp_path):
    import json

    run = finished(motet.FedAvg(), federation())
    exported = motet.export(run, "north", tmp_path / "north", onnx=True)
    props = {p.key: json.loads(p.value) for p in onnx.load(exported.raw_graph).metadata_props}
    assert props["inputs"] == {
        "numbers": ["age", "chol", "cp", "visit"],
        "categories": ["sex", "grade"],
    }
    assert Schema.from_dict(props["motet"]["schema"]) == schema().at("north")
