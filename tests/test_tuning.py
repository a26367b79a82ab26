"""Tests of the hyperparameter search: validation data only, equally many trials per method."""

from dataclasses import replace

import pytest
from small_comparisons import easy_world, numbers, world

import motet
from motet._compare.compare import compare
from motet._compare.comparison_dir import ComparisonDirectory
from motet._compare.comparison_spec import ComparisonSpec
from motet._compare.searching import TrialResult, chosen_trials, described
from motet._compare.tuning import Search, default_space
from motet._core.keys import Key
from motet._engine.federation import Run
from motet.errors import DataError, RequestError
from motet.methods._catalog import method_class, method_names
from motet.optim import Sgd

RATES = {"optimizer.lr": [1e-6, 0.2]}


def given(lr=1e-5, **more):
    """A configuration that learns nothing in a few rounds."""
    return motet.FedPer(optimizer=Sgd(lr=lr), **more)


def values(trials, name="optimizer.lr"):
    return [trial.tuned.get(name) for trial in trials]


# -- what is tried ------------------------------------------------------------


def test_the_given_configuration_is_always_the_first_try():
    for kind in ("random", "grid"):
        (trials,) = Search(space=RATES, kind=kind).trials_of({"mine": given()}, Key(0)).values()
        assert trials[0].method == given()
        assert values(trials)[0] == 1e-5


def test_a_grid_tries_every_combination_once():
    space = {"optimizer.lr": [0.1, 0.2], "mu": [0.1, 1.0]}
    own = motet.FedProx(mu=0.1)  # which is a point of the grid
    (trials,) = Search(space=space, kind="grid").trials_of({"fedprox": own}, Key(0)).values()
    points = [(trial.method.optimizer.lr, trial.method.mu) for trial in trials]
    assert points == [(0.1, 0.1), (0.1, 1.0), (0.2, 0.1), (0.2, 1.0)]


def test_random_tries_are_the_same_for_every_method():
    space = {"optimizer.lr": [0.1, 0.2, 0.3, 0.4, 0.5]}
    entries = {"a": motet.FedPer(optimizer=Sgd(lr=9.0)), "b": motet.Ditto(optimizer=Sgd(lr=9.0))}
    found = Search(space=space, trials=4).trials_of(entries, Key(0))
    assert values(found["a"]) == values(found["b"])
    assert len(set(values(found["a"]))) == 4
    assert values(found["a"]) != values(
        Search(space=space, trials=4).trials_of(entries, Key(1))["a"]
    )


def test_every_method_gets_as_many_tries():
    entries = {name: method_class(name)() for name in ("local", "fedprox", "knn-per", "fedadam")}
    found = Search(trials=5).trials_of(entries, Key(0))
    assert {label: len(trials) for label, trials in found.items()} == dict.fromkeys(entries, 5)


def test_a_space_smaller_than_the_tries_is_tried_whole():
    (trials,) = Search(space=RATES, trials=50).trials_of({"mine": given()}, Key(0)).values()
    assert sorted(values(trials)) == [1e-6, 1e-5, 0.2]


def test_what_a_method_lacks_is_left_out_for_it():
    entries = {"fedprox": motet.FedProx(), "fedper": motet.FedPer()}
    found = Search(space={"mu": [0.5], "optimizer.lr": [0.3]}, kind="grid").trials_of(
        entries, Key(0)
    )
    assert [dict(trial.tuned) for trial in found["fedper"]] == [
        {"optimizer.lr": 0.1},
        {"optimizer.lr": 0.3},
    ]
    assert found["fedprox"][1].tuned == {"mu": 0.5, "optimizer.lr": 0.3}


def test_a_name_may_be_for_one_method_or_one_label():
    entries = {"fedprox": motet.FedProx(), "mine": motet.FedProx(), "moon": motet.Moon()}
    found = Search(space={"mine.mu": [0.5], "moon.mu": [2.0]}, kind="grid").trials_of(
        entries, Key(0)
    )
    assert {label: values(trials, "mu") for label, trials in found.items()} == {
        "fedprox": [None],
        "mine": [0.1, 0.5],
        "moon": [1.0, 2.0],
    }


@pytest.mark.parametrize("name", method_names())
def test_the_usual_space_holds_values_that_the_method_accepts(name):
    method = method_class(name)()
    space = default_space(method)
    assert "optimizer.lr" in space
    assert all(len(v) > 1 for v in space.values())
    Search(trials=6).trials_of({name: method}, Key(0))


def test_the_usual_space_is_around_what_is_given_and_has_the_main_knob():
    space = default_space(motet.FedProx(mu=2.0, optimizer=Sgd(lr=0.5)))
    assert set(space) == {"optimizer.lr", "mu"}
    assert 0.15 in space["optimizer.lr"]
    assert 20.0 in space["mu"]
    assert set(default_space(motet.FedAdam())) == {"optimizer.lr", "server_optimizer.lr"}


@pytest.mark.parametrize(
    ("search", "sentence"),
    [
        ({"space": {"optimizer.lrr": [0.1]}}, 'did you mean "optimizer.lr"'),
        ({"space": {"server_optimizer.lr": [0.1]}}, "no compared method has"),
        ({"space": {"fedper.mu": [0.1]}}, 'has "fedper.mu"'),
        ({"space": {"optimizer.lr": ["fast"]}}, "methods.local.optimizer.lr expects a number"),
        ({"space": {"head_epochs": [-1]}}, "0 or more; got -1"),
        ({"space": {"optimizer.lr": 0.1}}, "expects a list of values"),
        ({"space": {"optimizer.lr": []}}, "expects a list of values"),
        ({"kind": "bayes"}, "known: grid, random"),
        ({"trials": 0}, "must be 1 or more; got 0"),
        ({"space": RATES, "kind": "grid", "trials": 2}, "has 3 points"),
    ],
)
def test_a_wrong_search_is_refused_before_anything_runs(search, sentence):
    with pytest.raises(RequestError) as refused:
        compare([given()], *world(), rounds=10**9, tune=Search(**search), seeds=1)
    assert sentence in str(refused.value)


def test_a_search_needs_validation_data():
    with pytest.raises(DataError, match="a hyperparameter search needs validation data"):
        compare([given()], *world(val=0.0), rounds=10**9, tune=2, seeds=1)


# -- what is chosen -----------------------------------------------------------


def test_the_best_on_the_validation_data_is_chosen_and_said():
    found = compare([given()], *easy_world(), rounds=3, tune=Search(space=RATES, trials=3), seeds=1)
    for row in found.rows:
        assert row.tuned == {"optimizer.lr": 0.2}
    tries = [t for t in found.tried if t["label"] == "fedper"]
    assert [t["number"] for t in tries] == [0, 1, 2]
    assert max(tries, key=lambda t: t["mean"])["tuned"] == {"optimizer.lr": 0.2}
    plain = compare([given(lr=0.2)], *easy_world(), rounds=3, seeds=1)
    assert [r.evaluation for r in found.rows] == [r.evaluation for r in plain.rows]


def test_what_was_given_is_kept_if_nothing_is_better():
    search = Search(space={"optimizer.lr": [1e-9, 0.2]})
    found = compare([given(lr=0.2)], *easy_world(), rounds=3, tune=search, seeds=1)
    assert {row.tuned["optimizer.lr"] for row in found.rows} == {0.2}


def test_a_search_has_a_seed_and_rounds_of_its_own():
    search = Search(space=RATES, rounds=2)
    spec = ComparisonSpec.of([given()], *world(), rounds=7, seeds=[0, 1], tune=search)
    trials = spec.trial_spec()
    assert trials.rules.rounds == 2
    assert not set(trials.seeds) & {0, 1}
    found = compare([given()], *world(), rounds=3, seeds=2, tune=search)
    assert (found.search["rounds"], found.search["seed"]) == (2, trials.seeds[0])


def test_no_search_ever_looks_at_test_data(monkeypatch):
    splits, evaluate = [], Run.evaluate

    def noted(self, split="test", *about):
        splits.append(split)
        return evaluate(self, split, *about)

    from motet._compare.compare import tuned_spec
    from motet._compare.records import NoRecords
    from motet._engine.observers import Watcher

    monkeypatch.setattr(Run, "evaluate", noted)
    for choose in ("last", "validation"):
        spec = ComparisonSpec.of([given()], *world(), rounds=2, choose=choose, tune=3, seeds=1)
        tuned_spec(spec, NoRecords(), Watcher())
    assert set(splits) == {"val"}


def test_methods_that_train_alike_are_also_searched_with_one_training():
    spec = ComparisonSpec.of([motet.FedAvg(), motet.KNNPer()], *world(), rounds=1, tune=4, seeds=1)
    groups = [labels for labels in spec.trial_spec().groups() if "fedavg #2" in labels]
    assert groups == [("fedavg-ft #2", "fedavg #2", "knn-per #2")]


def test_a_try_that_fails_is_a_bad_try(monkeypatch):
    advance = Run.advance

    def breaks_when_fast(self):
        if self.setting.method.optimizer.lr == 0.2:
            raise RuntimeError("too fast")
        return advance(self)

    monkeypatch.setattr(Run, "advance", breaks_when_fast)
    found = compare([given()], *world(), rounds=2, tune=Search(space=RATES, kind="grid"), seeds=1)
    assert {row.tuned["optimizer.lr"] for row in found.rows} <= {1e-5, 1e-6}
    failed = [t for t in found.tried if t["mean"] is None]
    assert {t["reason"] for t in failed} == {"too fast"}


def test_trials_are_compared_over_the_clients_that_all_of_them_have_a_value_for(tmp_path):
    spec = ComparisonSpec.of([given()], *world(), rounds=1, tune=Search(space=RATES), seeds=1)
    fast = next(n for n, t in enumerate(spec.trials["fedper"]) if t.tuned["optimizer.lr"] == 0.2)
    known = {
        (label, number): TrialResult(label, number, trial.tuned, 0.5, scores={"c0": (0.5, 9)})
        for label, trials in spec.trials.items()
        for number, trial in enumerate(trials)
    }
    # Over all its clients the given configuration is worse, because of one that the other lacks.
    for number, trial in enumerate(spec.trials["fedper"]):
        slow = {"c0": (0.9, 9), "c1": (0.1, 9)}
        scores = {"c0": (0.6, 9)} if number == fast else slow
        mean = sum(value for value, _ in scores.values()) / len(scores)
        known["fedper", number] = TrialResult("fedper", number, trial.tuned, mean, scores=scores)
    kept = ComparisonDirectory.claim(tmp_path / "kept")
    for one in known.values():
        kept.record_trial(one)
    assert chosen_trials(spec, kept.tried())["fedper"].tuned == {"optimizer.lr": 1e-5}
    _, shown = described(spec, kept.tried())
    assert {t["mean"] for t in shown if t["label"] == "fedper"} == {0.9, 0.6}
    # A trial without any value does not count, nor does it take clients from the others.
    known["fedper", fast] = TrialResult("fedper", fast, {"optimizer.lr": 0.2}, float("nan"))
    assert chosen_trials(spec, known)["fedper"].tuned == {"optimizer.lr": 1e-5}


def test_the_best_round_is_found_over_the_clients_that_have_a_value_in_both(monkeypatch):
    evaluate = Run.evaluate

    def easy_in_round_2(self, split="test", *about, **more):
        found = evaluate(self, split, *about, **more)
        values = (0.9, 0.9, 0.1) if found.round == 1 else (0.7, 0.7, 0.1)
        rows = [row._replace(value=v) for row, v in zip(found.rows, values, strict=True)]
        if split == "val" and found.round > 1:
            return replace(found, rows=tuple(rows[:2]), undefined=tuple(rows[2:]))
        return replace(found, rows=tuple(rows))

    monkeypatch.setattr(Run, "evaluate", easy_in_round_2)
    found = compare([given()], *easy_world(), rounds=2, choose="validation", seeds=1)
    assert {row.chosen_round for row in found.rows} == {1}


def test_a_number_of_tries_is_enough_to_ask_for_a_search():
    (a, b) = (
        compare([given(lr=0.1)], *world(), rounds=2, tune=tune, seeds=1).of("fedper")[0]
        for tune in (3, Search(trials=3))
    )
    assert numbers(a) == numbers(b)
    assert a.tuned
