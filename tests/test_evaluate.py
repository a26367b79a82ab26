"""Scores, and the numbers that are always reported together."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn
from toys import arrays

import motet
from motet import Evaluation, Task
from motet._core.criteria import CRITERIA
from motet._engine.evaluation import Score, score
from motet._engine.records import read_scores, score_rows
from motet.data import from_arrays
from motet.errors import DataError
from motet.testing import quadratic, ragged

TASK = Task(build=lambda: nn.Linear(4, 3))
DATA = arrays({"a": 9, "b": 6, "c": 12, "d": 4, "e": 5})


def table(values, sizes=None, metric="accuracy"):
    sizes = sizes or [1] * len(values)
    rows = tuple(
        Score(f"c{i:02}", n, v, 0.0) for i, (v, n) in enumerate(zip(values, sizes, strict=True))
    )
    return Evaluation("toy", metric, "test", "after_adapt", 1, rows)


def test_the_two_client_example_to_the_printed_digits():
    two = table([0.5, 0.9], [10, 90])
    assert two.weighted_mean == pytest.approx(0.86)
    assert two.mean == pytest.approx(0.70)
    assert two.std == pytest.approx(0.20)  # of the population, not of a sample
    assert two.decile == pytest.approx(0.54)
    assert two.worst == 0.5


def test_the_decile_is_numpys_linear_quantile():
    ten = table([0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.2])
    assert ten.decile == pytest.approx(0.515)
    assert ten.worst == 0.2


def test_errors_are_bad_at_the_other_end():
    errors = table([1.0, 2.0, 5.0], metric="rmse")
    assert errors.worst == 5
    assert errors.decile == pytest.approx(np.quantile([1, 2, 5], 0.9))
    assert not errors.higher_is_better


def test_gains_and_harm_are_paired_by_client_and_know_what_is_better():
    mine, theirs = table([0.5, 0.9, 0.7]), table([0.6, 0.8, 0.7])
    assert mine.gains(theirs) == pytest.approx({"c00": -0.1, "c01": 0.1, "c02": 0.0})
    assert mine.harmed(theirs) == pytest.approx(1 / 3)
    lower = table([0.5], metric="rmse").gains(table([0.6], metric="rmse"))
    assert lower["c00"] == pytest.approx(0.1)


def test_a_summary_says_what_it_is_about():
    summary = table([0.5, 0.9], [10, 90]).summary()
    assert {k: summary[k] for k in ("method", "metric", "split", "point", "round", "clients")} == {
        "method": "toy",
        "metric": "accuracy",
        "split": "test",
        "point": "after_adapt",
        "round": 1,
        "clients": 2,
    }
    assert "mean 0.7000  weighted 0.8600  std 0.2000  decile 0.5400" in str(
        table([0.5, 0.9], [10, 90])
    )


def test_accuracy_and_log_loss_of_probabilities():
    predicted = torch.tensor([[0.8, 0.2], [0.3, 0.7], [0.9, 0.1], [0.5, 0.5]])
    row = score("a", predicted, torch.tensor([0, 1, 1, 0]), CRITERIA["cross_entropy"])
    assert row.value == 0.75
    assert row.loss == pytest.approx(-np.log([0.8, 0.7, 0.1, 0.5]).mean(), abs=1e-6)


def test_a_probability_of_zero_is_expensive_but_finite():
    row = score("a", torch.tensor([[1.0, 0.0]]), torch.tensor([1]), CRITERIA["cross_entropy"])
    assert row.value == 0
    assert 60 < row.loss < math.inf


def test_a_model_that_has_diverged_is_not_scored_as_right():
    broken = torch.full((3, 2), torch.nan)
    row = score("a", broken, torch.tensor([0, 0, 0]), CRITERIA["cross_entropy"])
    assert row.value == 0
    assert math.isnan(row.loss)


def test_sequences_are_scored_label_by_label():
    predicted = torch.tensor([[[0.9, 0.1], [0.2, 0.8]], [[0.6, 0.4], [0.7, 0.3]]])
    row = score("a", predicted, torch.tensor([[0, 1], [0, 1]]), CRITERIA["cross_entropy"])
    assert (row.examples, row.value) == (4, 0.75)


def test_values_are_scored_by_their_root_mean_square():
    row = score("a", torch.tensor([[1.0], [4.0]]), torch.tensor([1.0, 1.0]), CRITERIA["mse"])
    assert row.value == pytest.approx(math.sqrt(4.5))
    assert row.loss == pytest.approx(4.5)


def test_clients_without_data_are_left_out_not_scored_as_perfect():
    world = ragged()
    run = motet.run(motet.FedAvg(), world.task, world.data, rounds=1)
    tested = {row.client for row in run.evaluate("test").rows}
    assert tested == set(world.data.clients) - {"untested"}
    assert {row.client for row in run.evaluate("val").rows} == set(world.data.clients) - {
        "unchecked"
    }
    assert sum(row.examples for row in run.evaluate("test").rows) == 22


def test_no_data_at_all_is_refused():
    data = arrays({"a": 4}, splits=("train",))
    run = motet.run(motet.FedAvg(), ragged().task, data, rounds=0)
    with pytest.raises(DataError, match='no client has examples in the split "test"'):
        run.evaluate()


def test_all_clients_are_scored_also_those_outside_the_cohort():
    data = arrays(dict.fromkeys("abcde", 3))
    run = motet.run(motet.FedPer(), ragged().task, data, rounds=1, cohort=1)
    assert [row.client for row in run.evaluate().rows] == list("abcde")
    assert [row.client for row in run.evaluate(clients=["d", "b"]).rows] == ["b", "d"]


def test_points_are_different_numbers_and_each_result_says_which():
    world = quadratic({"a": [4.0], "b": [0.0]})
    method = motet.FedAvgFT(optimizer=motet.Sgd(lr=0.5), adapt_epochs=2)
    run = motet.run(method, world.task, world.data, rounds=1, init={"w": [0.0]})
    # One round: a steps to 2, b stays at 0, their mean is 1.
    expected = {"after_broadcast": 3.0, "after_local": 1.5, "after_adapt": 0.75}
    for point, rmse in expected.items():
        result = run.evaluate(point=point)
        assert result.point == point
        assert result["a"].value == pytest.approx(rmse)


@pytest.mark.parametrize("backend", ["serial", "vectorized"])
def test_evaluating_twice_gives_the_same_table(backend):
    world = motet.testing.batch_norm()
    run = motet.run(motet.FedAvgFT(), world.task, world.data, rounds=1, backend=backend)
    assert run.evaluate() == run.evaluate()


def test_a_binary_task_is_scored_by_accuracy():
    x = np.array([[-2.0], [-1.0], [1.0], [2.0]], dtype="float32")
    data = from_arrays({"a": (x, [0, 0, 1, 1])}, test={"a": (x, [0, 1, 1, 1])})
    task = Task(build=lambda: nn.Linear(1, 1), loss="binary_cross_entropy")
    init = {"weight": [[5.0]], "bias": [0.0]}
    run = motet.run(motet.FedAvg(), task, data, rounds=0, init=init)
    result = run.evaluate()
    assert result.metric == "accuracy"
    assert result["a"].value == 0.75


def test_unknown_clients_in_a_table_are_key_errors():
    with pytest.raises(KeyError, match="zoe"):
        table([0.5])["zoe"]


def test_scores_can_be_written_while_they_come(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "motet._engine.records.ROWS_AT_ONCE", 2
    )  # several groups, and a last one of one
    run = motet.run(motet.FedPer(batch_size=4), TASK, DATA, rounds=1)
    count = run.write_scores(tmp_path / "scores.parquet", "train")
    rows = sorted(read_scores(tmp_path / "scores.parquet"), key=lambda row: row.client)
    assert rows == score_rows(run.evaluate("train"))
    assert count == len(rows) == len(DATA.clients)
    assert [file.name for file in tmp_path.iterdir()] == ["scores.parquet"]


def test_scores_of_some_clients_only_name_those(tmp_path):
    run = motet.run(motet.FedPer(batch_size=4), TASK, DATA, rounds=1)
    chosen = list(DATA.clients)[:2]
    run.write_scores(tmp_path / "scores.parquet", "train", clients=chosen)
    assert {row.client for row in read_scores(tmp_path / "scores.parquet")} == set(chosen)
