"""A small world of hospitals with raw rows of every kind, and exports of its models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import numpy as np

import motet
from motet._engine.federation import Run
from motet.data import Column, Federation, Scaling, Schema, Split, Target
from motet.method import AnyMethod

SITES = ("north", "south", "St. Mary / east")
COLUMNS = (
    Column(name="age", low=20.0, high=90.0, unit="years"),
    Column(name="chol", low=100.0, high=400.0, unit="mg/dl", indicator=True),
    Column(name="sex", kind="categorical", categories=("f", "m")),
    Column(name="cp", kind="categorical", categories=("1", "2", "4"), other=True),
    Column(name="grade", kind="ordinal", categories=("low", "mid", "high")),
    Column(name="visit", kind="date", parts=("age", "day_of_year"), reference="2024-01-01"),
)


def schema(
    kind: str = "classes", *, fills: bool = True, columns: Sequence[Column] = COLUMNS
) -> Schema:
    """The schema of the world; with statistics of its own for one site."""
    names = [name for column in columns for name in column.features]
    usual = {"age": (55.0, 14.0), "chol": (240.0, 50.0), "visit:age": (5.0, 3.0)}
    usual |= {"visit:day_of_year": (180.0, 100.0)}
    mean, deviation = zip(*(usual.get(name, (0.0, 1.0)) for name in names), strict=True)
    own = Scaling(tuple(m + 1 for m in mean), deviation)
    labels = ("ill", "well") if kind == "classes" else ()
    return Schema(
        columns=columns,
        target=Target(name="outcome", kind=kind, labels=labels),
        client="hospital",
        na=("-9",),
        fills=mean if fills else None,
        scaling=Scaling(mean, deviation),
        site_scaling={"north": own},
    )


def raw_rows(rows: int, *key: str, fills: bool = True) -> dict[str, list[Any]]:
    """Raw rows, as columns; with missing values if they are filled."""
    rng = motet.Key(0).fold("hospital", *key).numpy()
    gap = 0.1 if fills else 0.0

    def holed(values: list[Any]) -> list[Any]:
        return [None if rng.random() < gap else value for value in values]

    days = rng.integers(0, 2000, rows)
    return {
        "age": holed(rng.uniform(20, 90, rows).round(1).tolist()),
        "chol": holed(rng.uniform(100, 400, rows).round().tolist()),
        "sex": holed([str(s) for s in rng.choice(["f", "m"], rows)]),
        "cp": holed([int(c) for c in rng.choice([1, 2, 4, 7], rows)]),
        "grade": holed([str(g) for g in rng.choice(["low", "mid", "high"], rows)]),
        "visit": holed([date(2018, 1, 1) + timedelta(int(day)) for day in days]),
    }


def federation(kind: str = "classes", *, fills: bool = True, rows: int = 40) -> Federation:
    """Three sites whose inputs are encoded raw rows; the outcome depends on age and sex."""
    made, train = schema(kind, fills=fills), {}
    for site in SITES:
        x = made.encode(raw_rows(rows, site, fills=fills), site).x
        score = x[:, 0] + 2 * x[:, 3]
        y = (score > np.median(score)).astype(np.int64) if kind == "classes" else score
        train[site] = (x, y)
    classes = 2 if kind == "classes" else None
    data = motet.data.from_arrays(
        train=train, split=Split(0.2, 0.2), classes=classes, name="visits"
    )
    return replace(data, schema=made)


def finished(method: AnyMethod, data: Federation, *, rounds: int = 2) -> Run:
    """A run of a reference network."""
    loss = "mse" if data.classes is None else "cross_entropy"
    shape, classes = data.shape, data.classes
    task = motet.Task(
        lambda: motet.models.build("mlp", shape=shape, classes=classes, hidden=[6]), loss
    )
    return motet.run(method, task, data, rounds=rounds)
