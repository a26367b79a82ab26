"""Verdicts: intervals against an oracle, and laws of the rule."""

import math
from statistics import fmean, stdev

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from motet._recipes.judging import (
    Interval,
    Judge,
    against_published,
    compared,
    equivalence,
    over_seeds,
)
from motet._recipes.recipe import recipe_from_text
from motet._recipes.records import ClientScore, PointScores, Result

TEXT = """\
title = "t"
paper = "p"
table = "t"
source = "s"
data = []
[rule]
margin = 0.02
published_runs = 5
[trainings.a.method]
name = "fedavg"
[trainings.b.method]
name = "local"
[[cells]]
name = "A"
training = "a"
published = 0.8
spread = 0.01
reference = "B"
[[cells]]
name = "B"
training = "b"
published = 0.7
spread = 0.01
[[claims]]
text = "A is better"
contrast = { A = 1.0, B = -1.0 }
[scales.full]
cost = "none"
seeds = 4
same_setting = true
[scales.hour]
cost = "none"
seeds = 4
[scales.clients]
cost = "none"
seeds = 1
unit = "clients"
"""
RECIPE = recipe_from_text("r", TEXT)
shares = st.floats(0, 1)


def run(training, seed, values):
    clients = tuple(ClientScore(str(n), 10, v) for n, v in enumerate(values))
    scores = PointScores(metric="accuracy", higher=True, clients=clients)
    return Result(
        training=training,
        seed=seed,
        reported="after_adapt",
        rounds=1,
        split="",
        seconds=1.0,
        scores={"after_adapt": scores},
    )


def judged(scale, a, b):
    seeds = RECIPE.seeds(scale)
    found = {("a", s): run("a", s, a[s]) for s in seeds} | {
        ("b", s): run("b", s, b[s]) for s in seeds
    }
    judge = Judge(recipe=RECIPE, scale=scale, runs=found)
    return [str(c.verdict) for c in judge.cells()], [str(c.verdict) for c in judge.claims()]


def around(centre, spread=0.002, seeds=4, clients=6):
    rng = np.random.default_rng(0)
    return (centre + spread * rng.standard_normal((seeds, clients))).tolist()


@pytest.mark.parametrize(
    ("a", "verdict"),
    [(0.801, "reproduced"), (0.9, "refuted"), (0.7, "refuted"), (0.82, "not distinguishable")],
)
def test_the_published_setting_is_judged_by_the_number(a, verdict):
    cells, claims = judged("full", around(a), around(0.7))
    assert cells == [verdict, "reproduced"]
    assert claims == ["reproduced" if a > 0.75 else "not distinguishable"]


@pytest.mark.parametrize("scale", ["hour", "clients"])
@pytest.mark.parametrize(
    ("a", "verdict"), [(0.5, "as published"), (0.3, "opposite"), (0.4, "unclear")]
)
def test_a_smaller_setting_is_judged_by_the_direction_alone(scale, a, verdict):
    cells, claims = judged(scale, around(a, 0.02), around(0.4, 0.02)[::-1])
    assert cells == [f"direction only: {verdict}", "direction only: not compared"]
    assert claims == [f"direction only: {verdict}"]


def test_a_cell_without_all_its_seeds_has_no_verdict():
    found = {("a", s): run("a", s, [0.8]) for s in range(3)}
    judge = Judge(recipe=RECIPE, scale="full", runs=found)
    assert [str(c.verdict) for c in judge.cells()] == ["not run", "not run"]
    assert [str(c.verdict) for c in judge.claims()] == ["not run"]


@given(st.lists(shares, min_size=2, max_size=8))
def test_the_interval_against_a_published_mean_is_welchs(values):
    if stdev(values) < 1e-3:
        return
    found = against_published(values, RECIPE.cells[0], RECIPE)
    oracle = stats.ttest_ind_from_stats(
        fmean(values), stdev(values), len(values), 0.8, 0.01, 5, equal_var=False
    )
    decided = found.low > 0 or found.high < 0
    assert decided == (oracle.pvalue < 0.05)
    assert found.centre == pytest.approx(fmean(values) - 0.8)


@given(st.lists(shares, min_size=2, max_size=8))
def test_the_interval_over_seeds_is_students(values):
    if stdev(values) < 1e-3:
        return
    found = over_seeds(values, 0.95)
    oracle = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((oracle.low, oracle.high))


def test_one_seed_decides_nothing():
    assert over_seeds([0.5], 0.95).high == math.inf
    found = against_published([0.8], RECIPE.cells[0], RECIPE)
    assert equivalence(found, 0.02) == "not distinguishable"


@given(st.floats(-1, 1), st.floats(-1, 1), st.floats(0, 1), st.floats(0.001, 0.1))
def test_directions_do_not_depend_on_the_sign_convention(published, centre, reach, margin):
    ours = Interval(centre, centre - reach, centre + reach)
    other = Interval(-centre, -centre - reach, -centre + reach)
    assert compared(published, ours, margin) == compared(-published, other, margin)
    assert equivalence(ours, margin) == equivalence(other, margin)
