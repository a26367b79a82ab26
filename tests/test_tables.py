"""Tables as text: they fit, they say what their marks mean, and the verdict is below."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scored import noisy, scored

from motet._compare.comparison import Comparison
from motet._engine.results import Failure
from motet._verdict.text_tables import aligned, wide

LABELS = ("local", "fedavg", "fedavg-ft", "fedper")
CALM = {"client": 0.02, "seed": 0.002, "rest": 0.01}


@pytest.fixture(scope="module")
def comparison():
    means = {"fedper": 0.15, "fedavg": -0.3}
    return scored(noisy(np.random.default_rng(0), LABELS, clients=10, means=means, **CALM))


def widest(text):
    return max(map(wide, text.splitlines()))


def line_of(text, label, table):
    """The line of a method in the table that has this word in its header."""
    part = next(part for part in text.split("\n\n") if table in part.splitlines()[0])
    return next(line for line in part.splitlines() if line.startswith(label))


def test_supported_differences_are_marked_and_the_marks_explained(comparison):
    text = comparison.table()
    assert line_of(text, "fedper", "vs FedAvg+").count("▲") == 2
    assert line_of(text, "fedavg ", "vs FedAvg+").count("▼") == 2
    assert not {"▲", "▼", "△", "▽"} & set(line_of(text, "fedavg-ft", "vs FedAvg+"))
    assert "▲ better, ▼ worse, △ ▽ probably" in text
    assert "No mark: no clear difference." in text


def test_with_one_seed_marks_are_about_these_runs():
    local = np.linspace(0.5, 0.7, 8)[:, None]
    up_and_down = 0.01 * np.array([[2], [-1], [1], [-2], [0], [1], [-1], [0]])
    scores = {
        "local": local,
        "fedavg-ft": local + up_and_down,
        "fedper": local + 0.2 + 0.1 * up_and_down,
    }
    text = scored(scores).table()
    assert line_of(text, "fedper", "vs FedAvg+").count("↑") == 2
    assert not {"▲", "▼", "△", "▽"} & set(text.split("Verdict")[0])


def test_differences_stand_with_their_interval_in_points(comparison):
    lead = comparison.verdict().against("fedper", "fedavg-ft")
    line = line_of(comparison.table(), "fedper", "vs FedAvg+")
    assert f"{100 * lead.mean:+.1f} ▲  [{100 * lead.low:+.1f}, {100 * lead.high:+.1f}]" in line


def test_every_sentence_of_the_verdict_is_below_the_tables(comparison):
    flowing = " ".join(comparison.table().split("\nVerdict\n")[1].split())
    for sentence in comparison.verdict().sentences[1:]:
        assert sentence in flowing


def test_a_method_that_failed_is_listed_with_its_reason(comparison):
    failed = replace(comparison, failures=(Failure("fedem", 0, "the loss is NaN."),))
    text = failed.table()
    assert line_of(text, "fedem", "± seed").split()[1] == "failed"
    assert "fedem gave no result with seed 0: The loss is NaN." in text


def test_rounds_are_listed_where_validation_chose_different_ones(comparison):
    assert "round 5" in comparison.table()
    moved = [
        replace(row, evaluation=replace(row.evaluation, round=row.seed + 2))
        if row.label == "fedper"
        else row
        for row in comparison.rows
    ]
    text = replace(comparison, rows=tuple(moved)).table()
    assert "rounds as listed" in text
    assert line_of(text, "fedper", "sent up").endswith("2-4")
    assert line_of(text, "local", "sent up").endswith("5")


def test_without_references_there_are_scores_but_no_differences():
    text = scored({"fedper": [[0.5], [0.6]], "ditto": [[0.4], [0.7]]}).table()
    assert "vs FedAvg+" not in text
    assert line_of(text, "fedper", "weighted").count("-") == 2


def test_one_client_has_a_gain_but_no_interval():
    text = scored({"local": [[0.5]], "fedavg-ft": [[0.7]]}).table()
    assert line_of(text, "fedavg-ft", "vs local").split()[-2:] == ["+20.0", "-"]
    assert "nan" not in text


def test_when_everything_failed_the_table_is_the_verdict():
    nothing = Comparison(
        rows=(),
        data="toy",
        split="",
        rounds=1,
        cohort=1.0,
        failures=(Failure("fedper", 0, "no memory"),),
    )
    text = nothing.table()
    assert "nothing to compare" in text
    assert "fedper gave no result with seed 0: No memory." in text


@given(
    scale=st.sampled_from([1e-9, 0.01, 1.0, 1e4, 1e12, float("nan")]),
    clients=st.integers(1, 7),
    seeds=st.integers(1, 3),
    label=st.text("abc-ü", min_size=1, max_size=60),
    metric=st.sampled_from(["accuracy", "rmse"]),
)
def test_nothing_makes_the_table_wider_than_80_columns(scale, clients, seeds, label, metric):
    scores = noisy(np.random.default_rng(0), LABELS, clients=clients, seeds=seeds)
    scores[label + "x"] = scale * scores["fedper"]
    assert widest(scored(scores, metric=metric).table()) <= 80


def test_signs_of_two_columns_do_not_shift_a_row():
    table = aligned(["client", "score"], [["Zürich 医院", "0.500"], ["Bern", "12.3"]])
    assert len({wide(line) for line in table.splitlines()}) == 1


def test_huge_scores_keep_three_digits():
    scores = noisy(np.random.default_rng(0), LABELS, clients=10, means={"fedper": 0.15}, **CALM)
    table = scored({k: 4.2e9 * v for k, v in scores.items()}, metric="rmse").table()
    means = {line_of(table, label, "mean").split()[1] for label in LABELS}
    assert means == {"3.35e9", "3.38e9", "4.00e9"}  # local and fedavg-ft are that close
