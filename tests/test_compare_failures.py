"""A method that fails is reported, and does not stop the others."""

import json
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from small_comparisons import numbers, world

import motet
from motet._compare.compare import compare
from motet._compare.comparison import Comparison
from motet._compare.comparison_spec import ComparisonSpec
from motet._engine.observers import Watcher
from motet._engine.results import Failure
from motet.methods._fedavg import FedAvg
from motet.methods._fedavg_ft import FedAvgFT
from motet.methods._local import Local
from motet.optim import Sgd


@dataclass(frozen=True, kw_only=True)
class FailsToTrain(FedAvg):
    name: ClassVar[str] = "fails-to-train"

    def server_update(self, server, combined, info, task):
        if info.number == 1:
            raise RuntimeError("the server caught fire\nand more lines")
        return super().server_update(server, combined, info, task)


@dataclass(frozen=True, kw_only=True)
class FailsToServe(FedAvgFT):
    name: ClassVar[str] = "fails-to-serve"

    def personalize(self, down, client, data, task):
        raise ArithmeticError("no predictor today")


@dataclass(frozen=True, kw_only=True)
class FailsToShow(FedAvg):
    name: ClassVar[str] = "fails-to-show"

    def studies(self, run):
        raise KeyError("nothing to show")


@dataclass(frozen=True, kw_only=True)
class Diverges(FedAvgFT):
    name: ClassVar[str] = "diverges"

    def predict(self, personal, x, task):
        return super().predict(personal, x, task) * torch.nan


@dataclass(frozen=True, kw_only=True)
class BrokenLocal(Local):
    def personalize(self, down, client, data, task):
        raise RuntimeError("nobody is at home")


def test_a_method_that_fails_is_reported_and_the_others_are_not_touched():
    settings = {"rounds": 3, "cohort": 0.5, "seeds": 2}
    found = compare([FailsToTrain(), motet.FedPer()], *world(), **settings)
    assert found.failures == (
        Failure("fails-to-train", 0, "the server caught fire"),
        Failure("fails-to-train", 1, "the server caught fire"),
    )
    assert found.labels == ("local", "fedavg", "fedavg-ft", "fedper")
    alone = compare([motet.FedPer()], *world(), **settings)
    for row, expected in zip(found.rows, alone.rows, strict=True):
        assert numbers(row) == numbers(expected)


def test_one_that_cannot_serve_does_not_stop_those_it_shares_a_training_with():
    found = compare([FailsToServe(), motet.KNNPer()], *world(), rounds=2, seeds=1)
    assert [failure.label for failure in found.failures] == ["fails-to-serve"]
    assert "ArithmeticError: no predictor today" in found.failures[0].reason
    assert found.of("knn-per")[0].shared_with == "fedavg"


def test_predictions_that_are_no_numbers_for_any_client_are_a_failure():
    found = compare([Diverges()], *world(), rounds=1, seeds=1)
    assert "training diverged" in found.failures[0].reason
    assert "learning rate" in found.failures[0].reason


def test_charts_that_fail_cost_a_warning_and_no_result():
    (row,) = compare([FailsToShow()], *world(), rounds=1, seeds=1).of("fails-to-show")
    assert row.studies == ()
    assert "fails-to-show could not chart this run" in row.warnings[0]


def test_without_a_reference_the_numbers_relative_to_it_are_absent():
    found = compare({"alone": BrokenLocal(), "fedper": motet.FedPer()}, *world(), rounds=1, seeds=1)
    assert "alone" not in found.labels
    summary = found.summary("fedper")
    assert summary["harmed_vs_local"] is not None  # Local itself was added, and works
    absent = Comparison(
        rows=tuple(row for row in found.rows if row.label != "local"),
        data="toy",
        split="",
        rounds=1,
        cohort=1.0,
    )
    assert absent.label_of("local") is None
    assert absent.summary("fedper")["harmed_vs_local"] is None
    assert absent.summary("fedper")["harmed_vs_fedavg_ft"] is not None
    assert json.dumps(absent.to_dict())


def test_a_seed_that_failed_under_the_reference_is_left_out_of_the_harm():
    found = compare([motet.FedPer()], *world(), rounds=1, seeds=2)
    kept = [row for row in found.rows if (row.label, row.seed) != ("local", 1)]
    partly = Comparison(rows=tuple(kept), data="toy", split="", rounds=1, cohort=1.0)
    first = {row.label: row.evaluation for row in found.rows if row.seed == 0}
    assert partly.harmed("fedper", "local") == first["fedper"].harmed(first["local"])


def test_watchers_hear_of_failures_too():
    heard = []

    class Notes(Watcher):
        def began(self, label, seed, rounds):
            heard.append(("began", label))

        def finished(self, label, seed, row):
            heard.append(("finished", label))

        def failed(self, label, seed, reason):
            heard.append(("failed", label))

    spec = ComparisonSpec.of([FailsToTrain(), FailsToServe()], *world(), rounds=2, seeds=1)
    for labels in (["fails-to-train"], ["fedavg", "fails-to-serve"]):
        spec.run(labels, 0, Notes())
    assert heard == [
        ("began", "fails-to-train"),
        ("failed", "fails-to-train"),
        ("began", "fails-to-serve"),
        ("failed", "fails-to-serve"),  # before its first round
        ("began", "fedavg"),
        ("finished", "fedavg"),
    ]


def test_if_everybody_fails_there_is_still_something_to_write_down(monkeypatch):
    from motet._engine.federation import Run

    spec = ComparisonSpec.of([motet.FedPer(optimizer=Sgd(lr=0.1))], *world(), rounds=1, seeds=1)
    monkeypatch.setattr(Run, "advance", lambda self: 1 / 0)
    outcomes = [o for labels in spec.groups() for o in spec.run(labels, 0, Watcher())]
    found = spec.result([], outcomes)
    assert len(found.failures) == 4
    assert Comparison.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_an_interruption_is_no_failure(monkeypatch):
    from motet._engine.federation import Run

    def interrupted(self):
        raise KeyboardInterrupt

    spec = ComparisonSpec.of([motet.FedPer()], *world(), rounds=1, seeds=1)
    monkeypatch.setattr(Run, "advance", interrupted)
    with pytest.raises(KeyboardInterrupt):
        spec.run(["fedper"], 0, Watcher())


def test_a_watcher_that_breaks_is_not_the_methods_failure():
    class Breaks(Watcher):
        def round_done(self, label, seed, done, look):
            raise BrokenPipeError("nobody listens")

    spec = ComparisonSpec.of([motet.FedPer()], *world(), rounds=1, seeds=1)
    with pytest.raises(BrokenPipeError):
        spec.run(["fedper"], 0, Breaks())


def test_where_a_method_failed_is_in_the_log(caplog):
    spec = ComparisonSpec.of([FailsToTrain()], *world(), rounds=2, seeds=1)
    with caplog.at_level("DEBUG", logger="motet"):
        spec.run(["fails-to-train"], 0, Watcher())
    (record,) = [r for r in caplog.records if r.name == "motet._compare.shared_training"]
    assert record.exc_info[1].args[0].startswith("the server caught fire")
