"""Looks at validation data: how often, what they cost, and that they cost less than training."""

import pytest
import small_comparisons
from hypothesis import given
from hypothesis import strategies as st

import motet
from motet._compare.compare import compare
from motet._engine.looks import LOOKS, SHARE, LookCost, Looks, interval, looked_at
from motet._runs.recorded_run import begin, resume
from motet._training import fitting
from motet.config import experiment_from_dict
from motet.errors import MotetError
from motet.methods._catalog import method_class, method_names
from motet.testing._worlds import ragged

COSTS = st.builds(
    LookCost,
    training=st.floats(1, 1e6),
    served=st.floats(0, 1e7),
    unseen=st.floats(0, 1e7),
    taking_part=st.floats(0.001, 1),
)


@given(st.integers(1, 400), COSTS)
def test_looks_cost_at_most_half_of_the_training_unless_there_is_only_the_last(rounds, cost):
    every = interval(rounds, cost)
    looks = list(looked_at(rounds, every))
    assert looks[-1] == rounds
    assert len(looks) <= LOOKS + 1
    affordable = SHARE * cost.training * rounds
    assert cost.of_looks(rounds, every) <= affordable or len(looks) == 1
    if every > interval(rounds):  # then a look more would be too much
        assert cost.of_looks(rounds, every - 1) > affordable


@given(st.integers(1, 10_000))
def test_looks_that_cost_nothing_are_about_20(rounds):
    free = LookCost(0.0, 0.0, 0.0, 0.1)
    assert interval(rounds, free) == interval(rounds)
    assert min(rounds, LOOKS / 2) <= len(list(looked_at(rounds, interval(rounds)))) <= LOOKS + 1


class Recorder:
    """Stands in for the training loop, and counts the examples of active steps."""

    def __init__(self, real):
        self.real, self.gradients = real, 0.0

    def apply(self, spec, *leaves):
        batches = spec.structure[3]
        on_network = not any("prototype" in name for name in spec.structure[0])
        self.gradients += float(batches.weight.sum()) if on_network else 0.0
        return self.real.apply(spec, *leaves)


# Methods whose serving takes other gradients than one per example of a fit: two, those of a solver,
# or a search that is made once and not counted.
OTHERWISE = {"apfl", "cfl", "pfedme", "mocha", "fedala"}


@pytest.mark.parametrize("name", sorted(set(method_names()) - OTHERWISE))
def test_what_a_look_costs_is_what_serving_takes(name, monkeypatch):
    world, method = ragged(), method_class(name)()
    try:
        run = motet.run(method, world.task, world.data, rounds=1, cohort=3, backend="serial")
    except MotetError:
        pytest.skip(f"{name} is for other networks")
    counted = Looks(run).gradients()
    recorder = Recorder(fitting._Fit)
    monkeypatch.setattr(fitting, "_Fit", recorder)
    run.evaluate("val")
    assert counted == pytest.approx(recorder.gradients)


def test_a_method_that_fine_tunes_when_served_is_looked_at_less_often():
    task, data = small_comparisons.world()
    found = compare([motet.FedPer()], task, data, rounds=40, seeds=1)
    looks = {row.label: len(row.curve) for row in found.rows}
    assert looks["fedavg"] == looks["fedper"] == 20
    assert 1 <= looks["fedavg-ft"] <= 4  # 5 epochs for a look, 1 for a round
    for row in found.rows:
        assert row.cost.look_gradients <= SHARE * row.cost.gradients
    (tuned,) = found.of("fedavg-ft")
    each = sum(5 * data.size(client, "train") for client in data.clients)
    assert tuned.cost.look_gradients == len(tuned.curve) * each
    assert tuned.curve[-1].round == 40


def test_the_table_and_json_say_what_looks_took():
    task, data = small_comparisons.world()
    found = compare([motet.FedPer()], task, data, rounds=4, seeds=1)
    assert "Scoring validation data adapts models to clients" in " ".join(found.table().split())
    methods = {m["label"]: m["look_gradients"] for m in found.to_dict()["methods"]}
    assert methods["fedavg-ft"] > 0
    assert methods["fedavg"] == 0


def test_looks_change_no_result_that_they_do_not_choose():
    task, data = small_comparisons.world()
    often, rarely = (
        compare([motet.FedPer()], task, data, rounds=6, evaluate_every=every, seeds=1)
        for every in (1, 6)
    )
    assert [r.evaluation for r in often.rows] == [r.evaluation for r in rarely.rows]


def test_where_looks_choose_the_round_all_methods_are_looked_at_equally_often():
    task, data = small_comparisons.world()
    found = compare([motet.FedPer()], task, data, rounds=40, choose="validation", seeds=1)
    looks = {len(row.curve) for row in found.rows}
    assert len(looks) == 1
    assert looks.pop() >= 5


TABLES = {
    "run": {"rounds": 12, "backend": "serial"},
    "data": {"name": "digits", "partition": {"name": "iid", "clients": 3}},
    "method": {"name": "fedavg-ft"},
}


def test_a_run_writes_down_how_often_it_looks_and_what_that_took(tmp_path):
    session = begin(experiment_from_dict(TABLES), tmp_path / "run")
    with session.directory:
        for number, _ in enumerate(session.rounds(), start=1):
            if number == 9:
                session.save()
                break
    again = resume(tmp_path / "run")
    assert again.experiment.run.evaluate_every == session.experiment.run.evaluate_every > 1
    with again.directory:
        list(again.rounds())
        lines = again.directory.rounds()
    looks = [line for line in lines if "validation" in line]
    spent = sum(line["look_gradients"] for line in looks)
    assert 0 < spent <= SHARE * sum(line["gradients"] for line in lines) or len(looks) == 1


def test_what_was_asked_for_is_done_whatever_it_costs(tmp_path):
    tables = TABLES | {"run": {"rounds": 3, "backend": "serial", "evaluate_every": 1}}
    session = begin(experiment_from_dict(tables), tmp_path / "run")
    with session.directory:
        assert all(step.validation is not None for step in session.rounds())
