"""Laws of the schema: training and prediction are encoded alike, sites and pool agree."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from motet.data import Column, Scaling, Schema, Split, Target, from_table
from motet.data._tables.agreeing import Agreeing, in_order
from motet.data._tables.asking import Bracket, Question, count_at_most, decimals_of
from motet.data._tables.options import filling_of
from motet.data._tables.sending import SiteStatistics
from motet.data._tables.site import without_statistics
from motet.errors import DataError, MotetError, RequestError, StateError

quick = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
NUMBERS = st.one_of(
    st.none(), st.floats(-1e6, 1e6, allow_subnormal=False), st.integers(-1000, 1000)
)
WORDS = st.sampled_from(["f", "m", " F", "x", None, "?", "n/a"])
STAGES = st.sampled_from(["I", "II", "iii", None])
DATES = st.sampled_from(["1950-01-31", "2020-12-31", None, "1999-02-28"])
SITES = st.sampled_from(["north", "south", "East "])


@st.composite
def tables(draw):
    """Draw a table in which every site has a row and every column has a value."""
    size = draw(st.integers(0, 25))

    def column(values, first):
        return [*first, *draw(st.lists(values, min_size=size, max_size=size))]

    return {
        "site": column(SITES, ["north", "south", "East "]),
        "age": column(NUMBERS, [50.0, 60.0, 70.0]),
        "sex": column(WORDS, ["f", "m", "f"]),
        "stage": column(STAGES, ["I", "II", "iii"]),
        "born": column(DATES, ["1950-01-31", "1960-02-29", "2000-01-01"]),
        "y": column(st.sampled_from(["ill", "well"]), ["ill", "well", "ill"]),
    }


OPTIONS = {
    "client": "site",
    "target": "y",
    "categorical": ["sex"],
    "ordinal": {"stage": ["I", "II", "III"]},
    "dates": {"born": ["age", "month", "weekday"]},
}
MISSING = ["median", "mean", "client-median", "client-mean", "indicator", 3.5]


def opened(table, **options):
    return from_table(table, **OPTIONS, **options)


def rows_of(table, rows):
    return {name: [values[row] for row in rows] for name, values in table.items()}


@quick
@given(
    table=tables(),
    missing=st.sampled_from(MISSING),
    standardize=st.sampled_from([False, True, "site"]),
    seed=st.integers(0, 5),
)
def test_rows_to_predict_are_encoded_as_the_same_rows_in_training(
    table, missing, standardize, seed
):
    data = opened(table, missing=missing, standardize=standardize, seed=seed)
    schema = Schema.from_dict(json.loads(json.dumps(data.schema.to_dict())))
    assert schema == data.schema
    for client in data.clients:
        own = schema.at(client)
        for number, split in enumerate(("train", "val", "test")):
            rows = data.rows.rows(data.clients.index(client), number)
            raw, x = rows_of(table, rows), data.examples(client, split).x.numpy()
            assert np.array_equal(x, schema.encode(raw, client).x)
            assert np.array_equal(x, schema.encode(pa.table(raw)).x)
            # One row at a time, as a server gets them, and without the columns it ignores.
            del raw["site"], raw["y"]
            singly = [own.encode({k: [v[i]] for k, v in raw.items()}).x for i in range(len(rows))]
            assert np.array_equal(x, np.concatenate(singly)) if singly else not len(x)


@quick
@given(
    table=tables(),
    missing=st.sampled_from(MISSING),
    standardize=st.sampled_from(["none", "federation", "site"]),
    rare=st.sampled_from([0, 2, 0.05]),
    backwards=st.booleans(),
)
def test_statistics_from_aggregates_of_sites_are_those_of_the_pool_bit_by_bit(
    table, missing, standardize, rare, backwards
):
    data = opened(table, missing=missing, standardize=standardize, rare=rare)
    draft = without_statistics(data.schema)
    # What a site agreed to before: other categories, which are forgotten.
    columns = tuple(
        replace(c, categories=("m", "old"), other=False) if c.kind == "categorical" else c
        for c in draft.columns
    )
    draft = replace(draft, columns=columns)
    parts = [
        [pa.table(rows_of(table, sorted(rows))) for rows in (_all_rows(data, place), train)]
        for place, train in enumerate(data.rows.rows(n, 0) for n in range(len(data.clients)))
    ]

    def sent(question):
        found = [
            SiteStatistics.of(
                draft,
                site,
                *both,
                thresholds=None if question is None else question.thresholds,
                medians=missing == "client-median",
            ).to_dict()
            for site, both in zip(data.clients, parts, strict=True)
        ]
        received = [SiteStatistics.from_dict(json.loads(json.dumps(one)), draft) for one in found]
        filling = filling_of(missing, indicators=False)
        ordered = in_order(received[::-1] if backwards else received)
        return Agreeing(draft, ordered, filling, standardize, rare=rare)

    agreeing, medians = sent(None), None
    if agreeing.needs_medians:
        question = agreeing.first_question()
        while question.medians is None:
            question = Question.from_dict(json.loads(json.dumps(question.to_dict())))
            question = sent(question).next_question(question)
        medians = question.medians
    found = agreeing.schema(medians)
    assert found == replace(data.schema, site_fills={}, site_scaling={})


def _all_rows(data, place):
    return [row for split in range(3) for row in data.rows.rows(place, split)]


@quick
@given(
    sites=st.lists(
        st.lists(
            st.one_of(st.floats(-1e300, 1e300), st.integers(-40, 40), st.decimals(-9, 9, places=2))
        ),
        min_size=1,
        max_size=4,
    ).filter(any)
)
def test_medians_by_questions_are_exact(sites):
    each = [np.asarray([float(value) for value in site]) for site in sites]
    pooled = np.concatenate(each)
    grids = [decimals_of(values) for values in each if len(values)]
    decimals = None if None in grids else max(grids)
    bracket = Bracket.of(len(pooled), pooled.min(), pooled.max(), decimals)
    questions = 0
    while bracket.median is None:
        asked = [bracket.value(place) for place in bracket.asked]
        answers = [count_at_most(values, asked) for values in each]
        bracket = bracket.narrowed([sum(counts) for counts in zip(*answers, strict=True)])
        questions += 1
    ordered = np.sort(pooled)
    assert bracket.median == (ordered[(len(pooled) - 1) // 2] + ordered[len(pooled) // 2]) / 2
    assert questions <= 8
    if decimals is not None and (pooled.max() - pooled.min()) * 10**decimals < 250:
        assert questions <= 1


def test_scales_are_numpys_over_filled_training_rows():
    rng = np.random.default_rng(0)
    values = np.where(rng.random(300) < 0.2, np.nan, rng.normal(1e6, 1e-2, 300))
    table = {"site": ["a", "b", "c"] * 100, "x": values, "z": rng.random(300), "y": [0, 1] * 150}
    options = {"client": "site", "target": "y", "split": Split(0, 0), "missing": "mean"}
    data = from_table(table, standardize=True, indicators=True, **options)
    filled = np.where(np.isnan(values), np.nanmean(values), values)
    mean, deviation = data.schema.scaling.mean, data.schema.scaling.deviation
    assert data.features == ("x", "x_missing", "z")
    assert mean[0] == pytest.approx(filled.mean(), rel=1e-14)
    assert deviation[0] == pytest.approx(filled.std(), rel=1e-6)
    assert deviation[1] == pytest.approx(np.isnan(values).std())
    site = from_table(table, standardize="site", **options)
    own = site.examples("b", "train").x.numpy()
    assert np.allclose(own.mean(axis=0), 0, atol=1e-4)
    assert np.allclose(own.std(axis=0), 1, atol=1e-3)


def simple(**changes):
    parts = {
        "columns": (
            Column(name="age", low=20.0, high=90.0, unit="years"),
            Column(name="sex", kind="categorical", categories=("f", "m")),
        ),
        "target": Target(name="y", labels=("ill", "well")),
        "fills": (50.0, 0.0, 0.0),
        "scaling": Scaling((50.0, 0.0, 0.0), (10.0, 1.0, 1.0)),
    }
    return Schema(**{**parts, **changes})


def test_repaired_rows_are_counted():
    found = simple().encode({"age": [30, None, 200], "sex": ["f", "diverse", None]})
    assert found.x.tolist() == [[-2, 1, 0], [0, 0, 0], [15, 0, 0]]
    assert [(r.column, r.what, r.rows, r.first) for r in found.remarks] == [
        ("age", "out_of_range", 1, "row 3"),
        ("age", "filled", 1, "row 2"),
        ("sex", "unknown", 1, "row 2"),
        ("sex", "filled", 1, "row 3"),
    ]
    assert all(str(remark).endswith(".") for remark in found.remarks)
    absent = simple().encode({"age": [30, 40]})
    assert [(r.column, r.what, r.rows) for r in absent.remarks] == [("sex", "missing_column", 2)]


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"age": ["old"], "sex": ["f"]}, 'column "age" should hold numbers; row 1 has "old"'),
        ({"age": [math.inf], "sex": ["f"]}, "should hold finite numbers; row 1 has inf"),
        ({"age": [1, 2], "sex": ["f"]}, "same number of values"),
        ({"age": [[1]], "sex": ["f"]}, "should hold a number, text or a date"),
        ({"age": 3, "sex": ["f"]}, "must be a list"),
        (7, "expected a pyarrow.Table"),
    ],
)
def test_rows_that_cannot_be_encoded_are_refused_in_a_sentence(table, sentence):
    with pytest.raises((DataError, RequestError), match=sentence):
        simple().encode(table)


def test_a_schema_without_fills_refuses_missing_values():
    bare = simple(fills=None)
    with pytest.raises(DataError, match="1 of 2 values are missing, the first in row 2"):
        bare.encode({"age": [1, None], "sex": ["f", "m"]})
    with pytest.raises(DataError, match='no column "sex"'):
        bare.encode({"age": [1, 2]})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


def places(value, path=()):
    """List every place in nested JSON."""
    yield path
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(item, (*path, key))


@settings(max_examples=100, deadline=None)
@given(data=st.data(), junk=JSON)
def test_hostile_dictionaries_are_refused_in_a_sentence(data, junk):
    written = json.loads(json.dumps(simple(site_fills={"a": (1.0, 0.0, 0.0)}).to_dict()))
    path = data.draw(st.sampled_from(list(places(written))))
    if not path:
        written = junk
    else:
        table = written
        for key in path[:-1]:
            table = table[key]
        table[path[-1]] = junk
    try:
        schema = Schema.from_dict(written)
    except StateError as error:
        sentence = str(error)
    else:
        sentence = "."
        if _is_plain(schema):
            schema.encode({"age": [30.0], "sex": ["f"], "x": [1]}, "a")
    assert sentence.endswith(".")
    assert len(sentence) < 1000


def _is_plain(schema):
    return [column.name for column in schema.columns] == ["age", "sex"] and schema.fills is not None


def test_statistics_that_cannot_be_are_refused():
    draft = without_statistics(simple())
    table = pa.table({"age": [1.0, 2.0], "sex": ["f", "m"]})
    sent = SiteStatistics.of(draft, "a", table, table).to_dict()
    age = sent["inputs"]["age"]
    for change in (
        {"rows": -1},
        {"rows": 3},
        {"rows": True},
        {"inputs": {}},
        {"inputs": "x"},
        {"site": None},
        {"missing": {"age": 5, "sex": 0}},
        {"categories": {"sex": {"f": [2, 1]}}},
        {"categories": {"sex": {"f": [1]}}},
        {"inputs": {"age": {**age, "mean": math.nan}}},
        {"inputs": {"age": {**age, "known": 9}}},
        {"inputs": {"age": {**age, "spread": -1.0}}},
        {"inputs": {"age": {**age, "low": None}}},
        {"inputs": {"age": {**age, "at_most": [2, 1]}}},
        {"inputs": {"age": {**age, "at_most": [3]}}},
    ):
        with pytest.raises(DataError):
            SiteStatistics.from_dict({**sent, **change}, draft)
    one = SiteStatistics.from_dict(sent, draft)
    with pytest.raises(DataError, match="twice"):
        in_order([one, one])


@settings(max_examples=60, deadline=None)
@given(
    clients=st.lists(st.integers(0, 4), min_size=1, max_size=40),
    labels=st.lists(st.integers(0, 3), min_size=40, max_size=40),
    shares=st.sampled_from([(0.2, 0.2), (0.0, 0.5), (0.4, 0.0), (0.0, 0.0), (0.1, 0.7)]),
)
def test_cutting_all_clients_is_cutting_each(clients, labels, shares):
    from motet import Key
    from motet.data._partition.counts import group_rows

    owner, answers = np.asarray(clients), np.asarray(labels[: len(clients)])
    owner = np.unique(owner, return_inverse=True)[1]
    parts = group_rows(owner, owner.max() + 1)
    names, key, split = [f"c{i}" for i in range(len(parts))], Key(7), Split(*shares)
    together = split.cut_all(answers, np.arange(len(owner)), owner, names, key)
    for number, (part, name) in enumerate(zip(parts, names, strict=True)):
        for place, cell in enumerate(split.cut(answers[part], key.fold(name))):
            assert together.rows(number, place).tolist() == sorted(part[cell].tolist())


def test_every_error_of_a_schema_is_one_of_ours():
    with pytest.raises(MotetError, match="at least one column"):
        simple(columns=())
    with pytest.raises(MotetError, match="deviations must be above 0"):
        simple(scaling=Scaling((0.0,) * 3, (0.0, 1.0, 1.0)))
    with pytest.raises(RequestError, match='no column "agee"; did you mean "age"'):
        simple().column("agee")


WIDE = pa.table(
    {
        "site": ["a", "b", "c"] * 40,
        "age": [*range(118), None, 400],
        "sex": ["f", "m", None] * 40,
        "stage": ["I", "II", "III", "II"] * 30,
        "visit": ["2024-01-31", "2023-12-01"] * 60,
        "text": ["1", " 2 ", "?"] * 40,
        "outcome": [0, 1] * 60,
    }
)


@pytest.mark.parametrize("standardize", ["none", "federation", "site"])
@pytest.mark.parametrize("missing", ["client-median", "indicator"])
def test_large_tables_are_encoded_in_slices_like_small_ones_at_once(
    standardize, missing, monkeypatch
):
    schema = from_table(
        WIDE.slice(0, 118),
        client="site",
        target="outcome",
        categorical=["sex"],
        ordinal={"stage": ["I", "II", "III"]},
        dates=["visit"],
        missing=missing,
        standardize=standardize,
    ).schema
    table = WIDE.drop_columns("text")
    at_once = schema.encode(table)
    monkeypatch.setattr("motet.data._tables.encode.MANY_ROWS", 1)
    monkeypatch.setattr("motet.data._tables.encode.SLICE", 7)
    in_slices = schema.encode(table)
    np.testing.assert_array_equal(in_slices.x, at_once.x)
    assert in_slices.remarks == at_once.remarks
    assert {remark.what for remark in at_once.remarks} >= {"filled", "out_of_range"}


@pytest.mark.parametrize("missing", ["mean", "client-median"])
def test_a_large_table_is_the_same_federation_as_a_small_one(missing, monkeypatch):
    def made():
        return from_table(
            WIDE.drop_columns("text"),
            client="site",
            target="outcome",
            categorical=["sex"],
            ordinal={"stage": ["I", "II", "III"]},
            dates=["visit"],
            missing=missing,
            standardize=True,
        )

    small = made()
    for module in ("encode", "aggregates", "reading"):  # each column is then read in a thread
        monkeypatch.setattr(f"motet.data._tables.{module}.MANY_ROWS", 1)
    large = made()
    rows = np.arange(len(WIDE))
    np.testing.assert_array_equal(large.x.take(rows), small.x.take(rows))
    assert large.schema == small.schema
    assert large.notes == small.notes
    for name in ("missing", "known", "mean", "spread", "low", "high"):
        np.testing.assert_array_equal(
            getattr(large.aggregates, name), getattr(small.aggregates, name)
        )


def test_an_error_about_a_large_table_counts_all_its_rows(monkeypatch):
    monkeypatch.setattr("motet.data._tables.encode.MANY_ROWS", 1)
    monkeypatch.setattr("motet.data._tables.encode.SLICE", 7)
    columns = Column(name="age"), Column(name="sex", kind="categorical", categories=("f", "m"))
    schema = Schema(columns=columns, target=Target(name="outcome", labels=("0", "1")))
    with pytest.raises(DataError, match='"age": 1 of 120 values are missing, the first in row 119'):
        schema.encode(WIDE)
