"""Tests of the rules of a comparison: the reported round, the validation schedule, budgets."""

import numpy as np
import pytest
from small_comparisons import clouds, task, world

import motet
from motet._compare.budget import Budget
from motet._compare.compare import compare
from motet._compare.comparison_spec import ComparisonSpec
from motet._compare.rules import Rules
from motet._engine.federation import Run
from motet._engine.observers import Watcher
from motet.data import from_arrays
from motet.errors import DataError, RequestError
from motet.optim import Sgd

# -- looks --------------------------------------------------------------------


def test_the_validation_data_are_looked_at_now_and_then_and_at_the_end():
    found = compare([motet.FedPer()], *world(), rounds=7, evaluate_every=3, seeds=1)
    for row in found.rows:
        assert [look.round for look in row.curve] == [3, 6, 7]


def test_a_look_is_what_evaluating_that_round_gives_and_counts_what_was_spent():
    (row,) = compare(
        [motet.FedPer()], *world(), rounds=4, cohort=0.5, evaluate_every=2, seeds=1
    ).of("fedper")
    done = []
    for finished in motet.rounds(motet.FedPer(), *world(), rounds=4, cohort=0.5):
        done.append(finished)
        if finished.number == 2:
            seen = finished.evaluate("val")
    first = row.curve[0]
    expected = (seen.mean, seen.std, seen.decile, seen.worst, seen.loss)
    assert (first.mean, first.std, first.decile, first.worst, first.loss) == expected
    assert first.gradients == sum(finished.gradients for finished in done[:2])
    assert first.bytes_up == sum(finished.bytes_up for finished in done[:2])
    assert row.curve[-1].bytes_down == row.cost.bytes_down


def test_a_long_run_is_looked_at_about_twenty_times():
    assert Rules(rounds=5).every == 1
    assert Rules(rounds=30).every == 2
    assert Rules(rounds=1000).every == 50


def test_without_validation_data_there_is_nothing_to_look_at():
    found = compare([motet.FedPer()], *world(val=0.0), rounds=2, seeds=1)
    assert all(row.curve == () for row in found.rows)


# -- which round --------------------------------------------------------------


def test_the_last_round_is_judged_unless_validation_is_asked():
    found = compare([motet.FedPer()], *world(), rounds=3, seeds=1)
    assert {row.chosen_round for row in found.rows} == {3}


def restless():
    """A method whose validation mean goes up and down."""
    return motet.FedAvg(optimizer=Sgd(lr=3.0), batch_size=4)


def test_validation_chooses_the_first_of_its_best_rounds_and_the_test_scores_are_of_that_round():
    found = compare(
        {"mine": restless()}, *world(), rounds=6, choose="validation", evaluate_every=1, seeds=1
    )
    (row,) = found.of("mine")
    means = [look.mean for look in row.curve]
    assert row.chosen_round == 1 + int(np.argmax(means))
    assert row.chosen_round < 6, "the last round is the best one: the test would prove nothing"
    rounds = motet.rounds(restless(), *world(), rounds=6)
    at_that_round = [finished.evaluate("test") for finished in rounds]
    assert row.evaluation == at_that_round[row.chosen_round - 1]
    assert row.evaluation != at_that_round[-1]
    assert row.rounds == 6


def test_of_rounds_that_are_equally_good_the_first_is_chosen():
    still = motet.FedAvg(optimizer=Sgd(lr=1e-12))
    (row,) = compare([still], *world(), rounds=3, choose="validation", seeds=1).of("fedavg")
    assert len({look.mean for look in row.curve}) == 1
    assert row.chosen_round == 1


def split_by_hand(test_labels):
    """Training and validation data that never change, beside test labels that do."""
    clients = clouds((40, 60))
    parts = {
        "train": {c: (x[:20], y[:20]) for c, (x, y) in clients.items()},
        "val": {c: (x[20:30], y[20:30]) for c, (x, y) in clients.items()},
        "test": {c: (x[30:], test_labels(y[30:])) for c, (x, y) in clients.items()},
    }
    return task(), from_arrays(**parts, classes=2)


def test_test_labels_cannot_influence_which_round_is_chosen():
    methods = {"mine": restless(), "fedper": motet.FedPer(optimizer=Sgd(lr=3.0))}
    settings = {"rounds": 6, "choose": "validation", "tune": 2, "seeds": 1}
    honest = compare(methods, *split_by_hand(lambda y: y), **settings)
    for labels in (lambda y: 1 - y, np.zeros_like, np.ones_like):
        other = compare(methods, *split_by_hand(labels), **settings)
        assert [r.chosen_round for r in honest.rows] == [r.chosen_round for r in other.rows]
        assert [r.tuned for r in honest.rows] == [r.tuned for r in other.rows]
        assert [r.evaluation.mean for r in honest.rows] != [r.evaluation.mean for r in other.rows]


def test_the_test_data_are_scored_only_when_validation_has_improved(monkeypatch):
    asked, evaluate = [], Run.evaluate

    def noted(self, split="test", *about, **options):
        asked.append((self.rounds_done, split))
        return evaluate(self, split, *about, **options)

    monkeypatch.setattr(Run, "evaluate", noted)
    spec = ComparisonSpec.of({"mine": restless()}, *world(), rounds=6, choose="validation", seeds=1)
    (row,) = spec.run(["mine"], 0, Watcher())
    best, improved = -1.0, []
    for look in row.curve:
        if look.mean > best:
            best, improved = look.mean, [*improved, look.round]
    assert [number for number, split in asked if split == "test"] == improved
    assert len(improved) < len(row.curve)


def test_choosing_by_validation_needs_validation_data():
    with pytest.raises(DataError, match='choose="validation" needs validation data'):
        compare([motet.FedPer()], *world(val=0.0), rounds=10**9, choose="validation", seeds=1)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"choose": "best"}, "known: last, validation"),
        ({"choose": "validatoin"}, 'did you mean "validation"'),
        ({"evaluate_every": 0}, "at least 1 round; got 0"),
    ],
)
def test_wrong_rules_are_refused_before_anything_runs(settings, sentence):
    with pytest.raises(RequestError) as refused:
        compare([motet.FedPer()], *world(), rounds=10**9, **settings)
    assert sentence in str(refused.value)


# -- budgets ------------------------------------------------------------------


def per_round(**settings):
    """What FedAvg takes in each of four rounds."""
    return list(motet.rounds(motet.FedAvg(), *world(), rounds=4, **settings))


def test_a_run_ends_with_the_round_that_uses_the_gradients_up():
    one = per_round()[0].gradients
    for budget, expected in (
        (0.5 * one, 1),
        (one, 1),
        (1.01 * one, 2),
        (2.5 * one, 3),
        (9 * one, 4),
    ):
        found = compare(
            [motet.FedAvg()], *world(), rounds=4, budget=Budget(gradients=budget), seeds=1
        )
        (row,) = found.of("fedavg")
        assert row.rounds == row.chosen_round == expected
        assert row.cost.gradients == expected * one
        # Above the budget by less than the last round took; below it only if rounds ran out.
        assert row.cost.gradients - one < budget
        assert row.cost.gradients >= budget or row.rounds == 4


def test_bytes_count_in_both_directions_and_what_sends_nothing_runs_all_rounds():
    one = per_round(cohort=0.5)[0]
    limit = Budget(bytes=2 * (one.bytes_up + one.bytes_down))
    found = compare([motet.FedPer()], *world(), rounds=9, cohort=0.5, budget=limit, seeds=1)
    assert found.of("fedavg")[0].rounds == 2
    assert found.of("fedper")[0].rounds > 2  # it keeps the head at home
    assert found.of("local")[0].rounds == 9


def test_a_budget_of_rounds_leaves_schedules_as_planned():
    from motet._core.schedules import Linear

    method = motet.FedPer(schedule=Linear(warmup=0.5))
    settings = {"rounds": 8, "budget": Budget(rounds=3), "seeds": 1}
    (row,) = compare([method], *world(), **settings).of("fedper")
    planned = motet.rounds(method, *world(), rounds=8)
    third = [next(planned).evaluate("test") for _ in range(3)][-1]
    assert row.evaluation == third
    assert row.evaluation != motet.run(method, *world(), rounds=3).evaluate("test")


def test_seconds_of_training_can_be_limited():
    found = compare([motet.FedAvg()], *world(), rounds=10**9, budget=Budget(seconds=1e-9), seeds=1)
    assert {row.rounds for row in found.rows} == {1}


def test_the_last_round_of_a_budget_is_looked_at():
    budget = Budget(rounds=5)
    found = compare([motet.FedAvg()], *world(), rounds=20, evaluate_every=4, budget=budget, seeds=1)
    assert [look.round for look in found.of("fedavg")[0].curve] == [4, 5]


def test_a_method_that_cannot_do_one_round_within_the_budget_is_said_so():
    one = per_round()[0].gradients
    limits = Budget(gradients=one)
    found = compare([motet.FedAvg(epochs=3)], *world(), rounds=4, budget=limits, seeds=1)
    (row,) = found.of("fedavg")
    assert any("the budget is too small for a single round" in text for text in row.warnings)
    fitting = compare([motet.FedAvg()], *world(), rounds=4, budget=limits, seeds=1).of("fedavg")[0]
    assert not fitting.warnings
    assert found.budget == {"gradients": one}


@pytest.mark.parametrize("limit", [{"gradients": 0}, {"bytes": -1}, {"seconds": float("nan")}])
def test_a_budget_that_is_none_is_refused(limit):
    with pytest.raises(RequestError, match="above 0"):
        Budget(**limit)
