"""Survival targets of a user's table: read, refused, trained, exported and predicted."""

from __future__ import annotations

import csv
import random

import numpy as np
import pytest

from motet._cli.main import call
from motet.data import Schema, from_table
from motet.errors import DataError, RequestError

MEANT = {"client": "site", "target": "days", "event": "status"}


def visits(event=("1", "0"), unit="", rows=60):
    draw = random.Random(0)
    table = {name: [] for name in ("site", "age", "days", "status")}
    for n in range(rows):
        age, lasts, seen = draw.gauss(60, 9), draw.expovariate(1 / 400), draw.uniform(100, 900)
        table["site"].append("abc"[n % 3])
        table["age"].append(f"{age + (3 if lasts < 200 else -3):.1f}")
        table["days"].append(f"{min(lasts, seen):.0f}{unit}")
        table["status"].append(event[0] if lasts < seen else event[1])
    return table


@pytest.mark.parametrize("event", [("1", "0"), ("TRUE", "false"), ("yes", "no"), ("Dead", "alive")])
@pytest.mark.parametrize("unit", ["", " days"])
def test_times_and_events_are_read_however_they_are_written(event, unit):
    plain = from_table(visits(), **MEANT)
    data = from_table(visits(event, unit), **MEANT)
    assert data.survival
    assert data.classes is None
    assert data.features == ("age",)
    assert data.schema.target.unit == (unit.strip() or None)
    assert all(
        np.array_equal(data.examples(c, "train").y, plain.examples(c, "train").y)
        for c in data.clients
    )
    assert Schema.from_dict(data.schema.to_dict()) == data.schema


def test_labels_say_what_an_event_is():
    table = visits(("exitus", "lost"))
    with pytest.raises(DataError, match="--label exitus=1"):
        from_table(table, **MEANT, labels=["lost=0"])
    data = from_table(table, **MEANT, labels=["exitus=1", "lost=0"])
    assert data.examples("a", "train").y[:, 1].mean() > 0


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"kind": "classes"}, "kind='classes' does not apply"),
        ({"event": "days"}, "same column"),
        ({"labels": ["1=ill"]}, 'got the label "ill"'),
        ({"event": "state"}, 'no column "state"; did you mean "status"'),
        ({"features": ["age", "status"]}, "it cannot be a feature as well"),
    ],
)
def test_options_that_do_not_go_with_survival_are_refused(more, sentence):
    with pytest.raises(RequestError, match=sentence):
        from_table(visits(), **{**MEANT, **more})


@pytest.mark.parametrize(("column", "text"), [("days", "-4"), ("days", "soon"), ("days", "inf")])
def test_a_time_that_is_none_is_named_with_its_row(column, text):
    table = visits()
    table[column][7] = text
    with pytest.raises(DataError, match=r"row 8 .*--drop-missing-target"):
        from_table(table, **MEANT)
    data = from_table(table, **MEANT, na=[text], drop_missing_target=True)
    assert sum(data.sizes(split)[c] for split in ("train", "val", "test") for c in "abc") == 59


def test_a_table_of_survival_goes_from_compare_to_predictions(tmp_path, capsys):
    table = visits(("exitus", "lost"), " days")
    with (tmp_path / "visits.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([list(table), *zip(*table.values(), strict=True)])
    flags = [
        *("--table", str(tmp_path / "visits.csv"), "--client-column", "site", "--target", "days"),
        *("--event", "status", "--label", "exitus=1", "--label", "lost=0", "--metric", "c_index"),
        *("--rounds", "1", "--quiet"),
    ]
    run, models = str(tmp_path / "run"), str(tmp_path / "models")
    assert call(["compare", *flags, "--methods", "fedavg", "--seeds", "1"]) == 0
    assert "c_index" in capsys.readouterr().out
    assert call(["run", *flags, "--method", "fedavg", "--out", run]) == 0
    assert call(["export", run, "--all", "-o", models, "--no-onnx", "--no-references"]) == 0
    (tmp_path / "new.csv").write_text("site;age\na;61\nc;70\n")
    found = tmp_path / "found.csv"
    assert call(["predict", models, str(tmp_path / "new.csv"), "-o", str(found)]) == 0
    rows = list(csv.DictReader(found.read_text().splitlines()))
    curves = [[float(v) for k, v in row.items() if k.startswith("survival_")] for row in rows]
    times = [float(k.removeprefix("survival_")) for k in rows[0] if k.startswith("survival_")]
    assert len(times) > 1
    assert times == sorted(times)
    for row, curve in zip(rows, curves, strict=True):
        assert curve == sorted(curve, reverse=True)
        assert 0 < float(row["prediction"]) < times[-1]
