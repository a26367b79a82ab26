"""Any table, from a file to predictions: all ways to ask a model answer as its training rows say.

A table is drawn with kinds of columns, odd names, styles of writing and missing values; what is
predicted for its own rows, in another order and style, is compared with the exported graph on the
inputs that training used.
"""

import asyncio
import csv
import datetime
import io
import random

import httpx
import numpy as np
import onnxruntime
import pytest

import motet
from motet._export.opening import open_model
from motet._export.samples import graph_inputs
from motet._serving.service import make_service
from motet.config import experiment_from_dict

NAMES = ["Blutdruck (mmHg)", "größe", "select", "it's", "target", "x,y", 'say "hi"', "class", "0"]
NAMES += ["row", "label", "a;b", "x=1", "a|b", "%", "#n", "probability", "null", "value", "True"]
SITES = ["Zürich", "St. Gallen, Nord", "O'Hara", "007", "north/east", "DROP TABLE", "True"]
DATES = ("%Y-%m-%d", "%d.%m.%Y", "%Y-%m-%d %H:%M", "%d %b %Y")
TARGETS = {
    "boolean": ("TRUE", "FALSE"),
    "whole": ("5", "6", "7"),
    "text": ("a, b", "c"),
    "values": None,
    "labels": ("yes", "no"),
}
ROWS = 36


def number(random, digits=2):
    return f"{random.gauss(50, 20):.{digits}f}"


def cells(kind, random):
    """Draw the cells of a column, and the options that it needs in place of its name."""
    orders, words = ("low", "mid", "high"), (("a, b", 'q"x"', "ß"), ("007", "012"), ("true", "no"))
    day = datetime.datetime(1950, 1, 1)
    style, chosen = random.choice(DATES), random.choice(words)
    draw = {
        "whole": lambda: str(random.randrange(-20, 90)),
        "decimal": lambda: number(random),
        "boolean": lambda: random.choice(("TRUE", "FALSE")),
        "answer": lambda: random.choice(("Yes", "no")),
        "clock": lambda: f"{random.randrange(24):02}:{random.randrange(60):02}",
        "category": lambda: random.choice(chosen),
        "order": lambda: random.choice(orders),
        "date": lambda: (day + datetime.timedelta(hours=random.randrange(500_000))).strftime(style),
    }[kind]
    options = {"category": ("categorical", "{}"), "date": ("dates", "{}=year+month+weekday")}
    options["order"] = ("ordinal", "{}=" + "<".join(orders))
    return [draw() for _ in range(ROWS)], options.get(kind)


def drawn(seed):
    """Draw a table of texts by column, the kinds of its inputs and the options to read it with."""
    rng = random.Random(seed)
    target_kind = list(TARGETS)[seed % len(TARGETS)]
    client, *targets = rng.sample(NAMES, 4 if target_kind == "labels" else 2)
    options = {"client": client, "target": targets if len(targets) > 1 else targets[0]}
    sites = rng.sample(SITES, 2)
    table = {client: [sites[n % 2] for n in range(ROWS)]}
    for name in targets:
        of = TARGETS[target_kind]
        table[name] = [number(rng, 3) if of is None else rng.choice(of) for _ in range(ROWS)]
    kinds = dict.fromkeys(targets, "decimal") if target_kind == "values" else {}
    some = ("whole", "decimal", "boolean", "answer", "clock", "category", "order", "date")
    for name in rng.sample([name for name in NAMES if name not in table], 5):
        kinds[name] = rng.choice(some)
        table[name], option = cells(kinds[name], rng)
        if option is not None:
            options.setdefault(option[0], []).append(option[1].format(name))
        if rng.random() < 0.4:
            table[name] = [rng.choice(("", cell, cell, cell)) for cell in table[name]]
            options["missing"] = rng.choice(("median", "client-mean", "indicator"))
    options["standardize"] = rng.choice((False, "federation", "site"))
    order = rng.sample(list(table), len(table))
    return {name: table[name] for name in order}, kinds, options, targets, client


def write(path, table, kinds, delimiter, encoding, decimal):
    out = io.StringIO()
    written = csv.writer(out, delimiter=delimiter)
    written.writerow(table)
    for row in zip(*table.values(), strict=True):
        named = zip(table, row, strict=True)
        written.writerow(
            [c.replace(".", decimal) if kinds.get(n) == "decimal" else c for n, c in named]
        )
    path.write_bytes(out.getvalue().encode(encoding))


def natural(kind, cell):
    """Turn a cell into the value that a program would send."""
    if cell == "":
        return None
    read = {"whole": int, "decimal": float, "boolean": lambda text: text == "TRUE"}
    return read.get(kind, str)(cell)


def as_number(kind, value):
    """Turn a value into what a graph takes: answers, times of day and dates as numbers."""
    if value is None or kind not in ("answer", "clock", "date"):
        return value
    if kind == "answer":
        return float(value == "Yes")
    if kind == "clock":
        return int(value[:2]) + int(value[3:]) / 60
    for style in DATES:
        try:
            return datetime.datetime.strptime(value, style).date()
        except ValueError:
            continue
    raise AssertionError(value)


def served(path, rows):
    async def ask():
        transport = httpx.ASGITransport(app=make_service(*open_model(path)))
        async with httpx.AsyncClient(transport=transport, base_url="http://motet") as client:
            return await client.post("/predict", json={"rows": rows})

    answer = asyncio.run(ask())
    assert answer.status_code == 200, answer.text
    found = answer.json()["predictions"]
    return [list(one["probabilities"].values()) if "label" in str(one) else one for one in found]


@pytest.mark.parametrize("seed", range(5))
def test_all_ways_to_ask_a_model_agree_with_the_inputs_of_its_training(seed, tmp_path):
    table, kinds, options, targets, client = drawn(seed)
    write(tmp_path / "t.csv", table, kinds, ";", "cp1252", ",")
    experiment = experiment_from_dict(
        {
            "method": {"name": "fedper"},
            "data": {"table": str(tmp_path / "t.csv"), **options},
            "run": {"rounds": 1, "backend": "serial"},
            "model": {"name": "mlp", "hidden": [4]},
        }
    )
    data = experiment.federation()
    run = experiment.start(data)
    run.advance()
    site = data.clients[0]
    model = motet.export(run, site, tmp_path / "model", onnx=True)
    predictor = motet.load_predictor(model.tensors)
    here = [row for row, name in enumerate(table[client]) if name == site]
    own = {name: [column[row] for row in here] for name, column in table.items()}

    graph = onnxruntime.InferenceSession(str(model.graph))
    (expected,) = graph.run(None, {"x": np.asarray(data.x.take(np.asarray(here)))})
    expected = expected.reshape(len(here), -1)

    def agrees(found):
        found = np.asarray(found).reshape(expected.shape)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)

    # A file with other columns, in another order and style.
    names = [name for name in reversed(own) if name not in targets]
    other = {"extra": [str(row) for row in here], **{name: own[name] for name in names}}
    write(tmp_path / "rows.tsv", other, kinds, "\t", "utf-16", ".")
    agrees(predictor.predict_rows(tmp_path / "rows.tsv").values)

    inputs = [column.name for column in predictor.schema.columns]
    texts = [{n: own[n][i] or None for n in inputs} for i in range(len(here))]
    values = [{n: natural(kinds[n], own[n][i]) for n in inputs} for i in range(len(here))]
    agrees(predictor.predict_rows(values).values)
    raw = onnxruntime.InferenceSession(str(model.raw_graph))
    columns = {n: [as_number(kinds[n], row[n]) for row in values] for n in inputs}
    agrees(raw.run(None, graph_inputs(predictor.schema, columns))[0])
    for rows in (texts, values):
        agrees(
            [one["value"] if isinstance(one, dict) else one for one in served(model.tensors, rows)]
        )
