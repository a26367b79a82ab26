"""Scores of clients that diverged, and runs that go on after rounds that failed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from saved import assert_same_run
from small_comparisons import world

import motet
from motet._cli.run_summary import _scores
from motet._compare.budget import Spent
from motet._compare.compare import compare
from motet._compare.comparison import Comparison
from motet._compare.shared_training import look_at
from motet._core.criteria import CRITERIA
from motet._engine.evaluation import Evaluation, Score, score
from motet._engine.records import read_scores, score_rows, write_scores
from motet._runs.recorded_run import begin, resume
from motet.config import experiment_from_dict
from motet.methods._fedavg_ft import FedAvgFT
from motet.report._parts import page_part

NAN, INF = math.nan, math.inf
EXPERIMENT = {
    "method": {"name": "fedadam", "batch_size": 16},
    "data": {"name": "digits", "partition": {"name": "pathological", "clients": 4, "classes": 3}},
    "model": {"name": "logistic"},
}


# -- one client ---------------------------------------------------------------


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
@pytest.mark.parametrize("where", [(0, 0), (0, 1), (2, 1)])
@pytest.mark.parametrize("loss", ["cross_entropy", "mse"])
def test_one_prediction_that_is_not_finite_marks_the_client(loss, where, bad):
    columns = 2 if loss == "cross_entropy" else 1
    predicted = torch.full((3, columns), 1 / columns)
    predicted[where[0], min(where[1], columns - 1)] = bad
    y = torch.tensor([0, 1, 0]) if columns == 2 else torch.ones(3)
    assert score("a", predicted, y, CRITERIA[loss]).diverged
    assert not score("a", predicted.nan_to_num(0.5, 0.5, 0.5), y, CRITERIA[loss]).diverged


def an_evaluation(*diverged, metric="accuracy", value=0.0):
    rows = [Score(c, 10, 0.5, 1.0) for c in ("a", "b", "c")]
    rows += [Score(c, 10, value, NAN, diverged=True) for c in diverged]
    return Evaluation("m", metric, "test", "after_adapt", 3, tuple(sorted(rows)))


def test_an_average_says_how_many_of_its_clients_diverged_and_what_that_does_to_it():
    table = an_evaluation("d", "e")
    assert table.diverged == ("d", "e")
    assert table.summary()["diverged"] == 2
    assert table.mean == pytest.approx(0.3)
    told = "2 of 5 clients have diverged: their predictions on test data are not finite (d, e); "
    assert told + "accuracy counts these predictions as wrong." in str(table)
    assert "accuracy counts these predictions as wrong" in table._repr_html_()
    assert look_at(table, Spent()).diverged == 2


def test_a_sound_average_says_nothing():
    assert "diverged" not in str(an_evaluation())
    assert "diverged" not in an_evaluation()._repr_html_()


@pytest.mark.parametrize("value", [NAN, INF])
def test_an_error_without_a_value_is_shown_and_drawn_from_the_others(value):
    table = an_evaluation("d", metric="rmse", value=value)
    assert "every mean over all clients, has no finite value" in str(table)
    assert "0.5" in _scores(table)
    assert not math.isfinite(table.std)


def test_the_mark_is_in_the_table_of_scores(tmp_path):
    path = tmp_path / "clients.parquet"
    write_scores(path, score_rows(an_evaluation("d")))
    assert {row.client: row.diverged for row in read_scores(path)} == {
        "a": False, "b": False, "c": False, "d": True,
    }  # fmt: skip


# -- comparisons --------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class BlindForSome(FedAvgFT):
    """Predicts no numbers where the first input is positive."""

    name: ClassVar[str] = "blind-for-some"

    def predict(self, personal, x, task):
        return super().predict(personal, x, task) / (x[:, :1] < 1.5)


def test_a_method_that_predicts_no_numbers_for_some_is_ranked_marked_and_explained():
    found = compare([BlindForSome()], *world(), rounds=1, seeds=1)
    blind = found.diverged("blind-for-some")
    assert 0 < len(blind) <= 4
    assert found.summary("blind-for-some")["diverged"] == len(blind)
    caveat = f"blind-for-some has diverged for {len(blind)} client"
    assert any(caveat in sentence for sentence in found.verdict().sentences)
    assert any(caveat in sentence for sentence in page_part(found).verdict)
    remarks = {cells[0].text: cells[0].remark for cells in page_part(found).scores.rows}
    assert remarks["blind-for-some"] == f"{len(blind)} of 4 clients diverged"
    assert "training diverged in part" in found._repr_html_()
    assert Comparison.from_dict(found.to_dict()).diverged("blind-for-some") == blind


def test_a_comparison_of_sound_methods_has_no_mark():
    found = compare([motet.FedPer()], *world(), rounds=1, seeds=1)
    assert "diverged" not in found.table()
    assert "!" not in found.table()


@pytest.mark.parametrize("choose", ["last", "validation"])
@pytest.mark.parametrize("method", [motet.Local, motet.Ditto, motet.FedAvg])
def test_a_method_that_never_took_a_finite_step_has_no_result(method, choose):
    wild = method(optimizer=motet.Sgd(lr=1e38), batch_size=4)
    found = compare(
        {"sound": motet.FedPer(), "wild": wild}, *world(), rounds=2, choose=choose, seeds=1
    )
    (failure,) = found.failures
    assert failure.label == "wild"
    assert "training diverged everywhere" in failure.reason
    assert "c0, c1, c2, c3" in failure.reason


# -- going on -----------------------------------------------------------------


def settings(**run):
    faults = {"corrupt": ["1"], "corruption": "huge", "lost": 0.2}
    return experiment_from_dict({**EXPERIMENT, "run": {"rounds": 5, "faults": faults, **run}})


def finished(session):
    for _ in session.rounds():
        pass
    session.conclude()
    session.directory.close()
    return session.run


def test_a_run_with_rounds_that_failed_resumes_to_the_same_bytes_and_the_same_account(tmp_path):
    asked = settings(checkpoint_every=1)
    whole = finished(begin(asked, tmp_path / "whole"))
    assert whole.divergence.failed
    part = begin(asked, tmp_path / "part")
    for step in part.rounds():
        if step.round.number == 2:
            break
    part.directory.close()
    again = finished(resume(tmp_path / "part"))
    assert again.divergence == whole.divergence
    assert again.warnings == whole.warnings
    assert_same_run(tmp_path / "whole", tmp_path / "part")
