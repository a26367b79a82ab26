"""The round loop: what a run starts from, keeps, refuses and hands back."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from toys import ToyAMP, ToyPhases, arrays, assert_close, assert_same

import motet
from motet import Key, Task
from motet._core import tree
from motet._core.schedules import Exponential, Linear
from motet._engine.federation import start
from motet.data import from_arrays
from motet.errors import (
    CapabilityError,
    CohortError,
    DataError,
    RequestError,
    StateError,
    StructureError,
)
from motet.models import build
from motet.testing import quadratic, ragged
from motet.testing._driving import predictions, states

TASK = ragged().task
BACKENDS = ["serial", "vectorized"]


# -- where a run starts -------------------------------------------------------


def test_no_rounds_return_the_initial_state_exactly():
    data = arrays({"a": 4, "b": 3})
    initial = TASK.init(Key(7).fold("init"))
    run = motet.run(motet.FedAvg(), TASK, data, rounds=0, seed=7)
    assert_same(run.server, initial)
    assert run.rounds_done == 0
    local = motet.run(motet.Local(), TASK, data, rounds=0, seed=7)
    assert_same(local.clients["a"], initial)
    assert local.server == {}


def test_every_method_starts_from_the_same_model():
    data = arrays({"a": 4})
    fedavg, local = (motet.run(m(), TASK, data, rounds=0) for m in (motet.FedAvg, motet.Local))
    assert_same(fedavg.server, local.clients["a"])


def test_initial_values_are_taken_over_exactly_and_may_be_some_of_them():
    data = arrays({"a": 4})
    bias = np.array([1.0, 2.0, 3.0])
    run = motet.run(motet.FedAvg(), TASK, data, rounds=0, init={"head.bias": bias})
    assert run.server["head.bias"].tolist() == [1, 2, 3]
    assert_same(
        tree.drop(run.server, ["head.bias"]),
        tree.drop(TASK.init(Key(0).fold("init")), ["head.bias"]),
    )


def test_initial_values_reach_private_parts_and_those_of_a_client_win():
    data = arrays({"a": 4, "b": 4})
    run = motet.run(
        motet.FedPer(),
        TASK,
        data,
        rounds=0,
        init={"head.bias": [1.0, 1.0, 1.0]},
        init_clients={"a": {"head.bias": [2.0, 2.0, 2.0]}},
    )
    assert run.clients["a"]["head.bias"].tolist() == [2, 2, 2]
    assert run.clients["b"]["head.bias"].tolist() == [1, 1, 1]


def test_a_given_client_is_served_as_it_is_and_a_fresh_one_adapts_first():
    data = arrays({"a": 4, "b": 4})
    given = {"head.weight": np.zeros((3, 5)), "head.bias": np.zeros(3)}
    run = motet.run(motet.FedPer(), TASK, data, rounds=0, init_clients={"a": given})
    x = data.examples("a", "test").x
    torch.testing.assert_close(run.predict("a", x), torch.full((4, 3), 1 / 3))
    assert not torch.equal(run.personal("b")["head.bias"], run.clients["b"]["head.bias"])


def test_handed_over_values_are_copies():
    data = arrays({"a": 4})
    bias = torch.ones(3)
    run = motet.run(motet.FedAvg(), TASK, data, rounds=0, init={"head.bias": bias})
    bias.zero_()
    assert run.server["head.bias"].tolist() == [1, 1, 1]


def test_slots_of_a_clients_state_are_named_as_they_are_written():
    class Slotted(motet.Local):
        def init_client(self, task, initial, key):
            return tree.prefixed("mine", initial)

        def client_update(self, down, client, data, task):
            return down, client

        def adapt(self, down, client, data, task):
            return client

        def personalize(self, down, client, data, task):
            return tree.slot("mine", client)

    run = motet.run(
        Slotted(),
        TASK,
        arrays({"a": 4}),
        rounds=1,
        init_clients={"a": {"mine/head.bias": [1, 2, 3]}},
    )
    assert run.clients["a"]["mine/head.bias"].tolist() == [1, 2, 3]


# -- what goes on in a round --------------------------------------------------


def test_rounds_yields_what_run_ends_with():
    data = arrays({"a": 4, "b": 7, "c": 5})
    settings = {"rounds": 3, "cohort": 2, "seed": 4}
    seen = list(motet.rounds(motet.FedPer(), TASK, data, **settings))
    whole = motet.run(motet.FedPer(), TASK, data, **settings)
    assert [r.number for r in seen] == [1, 2, 3]
    assert all(len(r.cohort) == 2 for r in seen)
    assert_same(seen[-1].server, whole.server)


def test_a_caller_may_stop_early_and_loses_nothing():
    data = arrays({"a": 4, "b": 7})
    for round_ in motet.rounds(motet.FedAvg(), TASK, data, rounds=9):
        if round_.number == 2:
            break
    two = motet.run(motet.FedAvg(), TASK, data, rounds=2)
    assert_same(round_.server, two.server)


def test_cohorts_are_the_same_for_every_method():
    data = arrays(dict.fromkeys("abcdefgh", 3))
    cohorts = [
        [r.cohort for r in motet.rounds(m, TASK, data, rounds=4, cohort=0.25, seed=3)]
        for m in (motet.FedAvg(), motet.Local(), ToyAMP())
    ]
    assert cohorts[0] == cohorts[1] == cohorts[2]
    assert len(set(cohorts[0])) > 1


@pytest.mark.parametrize(
    "method", [motet.FedAvg(batch_size=3), motet.FedPer(batch_size=3), ToyAMP()]
)
def test_seeds_differ_and_equal_seeds_do_not(method):
    data = arrays({"a": 6, "b": 7})
    first, again, other = (motet.run(method, TASK, data, rounds=1, seed=s) for s in (0, 0, 1))
    assert_same(states(first), states(again))
    assert not torch.equal(
        first.predict("a", torch.ones(1, 4)), other.predict("a", torch.ones(1, 4))
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_schedule_scales_the_learning_rate_of_each_round(backend):
    world = quadratic({"a": [1.0]})
    method = motet.FedAvg(optimizer=motet.Sgd(lr=0.5), schedule=Exponential(factor=0.5))
    seen = [
        r.server["w"].item()
        for r in motet.rounds(
            method, world.task, world.data, rounds=3, init={"w": [0.0]}, backend=backend
        )
    ]
    # w moves by lr * rate * (1 - w): 0.5, then 0.25 of the rest, then 0.125 of the rest.
    assert seen == pytest.approx([0.5, 0.625, 0.671875])


def test_adaptation_runs_at_the_full_learning_rate_whatever_the_schedule():
    world = quadratic({"a": [4.0], "b": [0.0]})
    method = motet.FedAvgFT(optimizer=motet.Sgd(lr=0.5), adapt_epochs=1, schedule=Linear())
    for rounds in (0, 2):
        run = motet.run(method, world.task, world.data, rounds=rounds, init={"w": [0.0]})
        w = run.server["w"].item()
        assert run.personal("a")["w"].item() == pytest.approx(w + 0.5 * (4 - w))


def test_parts_of_a_clients_data_stay_the_same_while_batch_orders_change():
    run = start(ToyPhases(batch_size=2), TASK, arrays({"a": 12}), rounds=2)
    first, second = (run.setting.data("a", run.setting.method.plans(), number) for number in (0, 1))
    for phase in ("head", "body"):
        rows = [data[phase].rows for data in (first, second)]
        assert set(rows[0].flatten().tolist()) == set(rows[1].flatten().tolist())
        assert not torch.equal(*rows)
    halves = [set(first[phase].rows.flatten().tolist()) for phase in ("head", "body")]
    assert sorted(set.union(*halves)) == list(range(12))
    assert not set.intersection(*halves)


@pytest.mark.parametrize("backend", BACKENDS)
def test_permuting_the_clients_permutes_the_results(backend):
    sizes = {"a": 4, "b": 7, "c": 5}
    data = arrays(sizes)
    swap = {"a": "b", "b": "c", "c": "a"}
    pairs = {swap[c]: tuple(data.examples(c, "train")) for c in sizes}
    renamed = from_arrays(pairs, classes=3)
    method = motet.Local(batch_size=None)  # batch orders are drawn by the client's name
    first, second = (motet.run(method, TASK, d, rounds=2, backend=backend) for d in (data, renamed))
    for c in sizes:
        assert_close(first.clients[c], second.clients[swap[c]], 1e-6)
    averaged = [
        motet.run(motet.FedAvg(batch_size=None), TASK, d, rounds=2).server for d in (data, renamed)
    ]
    assert_close(*averaged, 1e-6)


def test_test_data_change_no_trained_state():
    data = arrays({"a": 6, "b": 5})
    splits = {s: {c: tuple(data.examples(c, s)) for c in "ab"} for s in ("train", "val")}
    poison = {c: (1e3 * data.examples(c, "test").x, 2 - data.examples(c, "test").y) for c in "ab"}
    poisoned = from_arrays(**splits, test=poison, classes=3)
    for method in (motet.FedAvgFT(), motet.FedPer(), ToyAMP()):
        runs = [motet.run(method, TASK, d, rounds=2) for d in (data, poisoned)]
        for run in runs:
            run.evaluate("test")
        assert_same(states(runs[0]), states(runs[1]))
        for c in "ab":
            assert_same(runs[0].personal(c), runs[1].personal(c))


def test_a_method_that_asks_for_test_data_is_refused():
    class Cheat(motet.FedAvg):
        def plans(self):
            return {"train": motet._training.batching.Plan(split="test")}

    with pytest.raises(RequestError, match='walks "train" or "val" data, not "test"'):
        Cheat()


# -- what a run hands back ----------------------------------------------------


def test_nothing_a_run_hands_back_is_the_run_itself():
    data = arrays({"a": 4, "b": 3})
    for backend in BACKENDS:
        run = motet.run(motet.FedPer(), TASK, data, rounds=1, cohort=1, backend=backend)
        before = tree.clone((states(run), predictions(run)))
        for client in data.clients:
            for leaf in [*tree.leaves(run.personal(client)), *tree.leaves(run.clients[client])]:
                leaf.fill_(99)
        for leaf in tree.leaves(run.adapt(*data.examples("a", "train")).personal):
            leaf.fill_(99)
        with torch.no_grad():
            for parameter in run.model("a").parameters():
                parameter.fill_(99)
        assert_same(before, (states(run), predictions(run)))


def test_a_model_is_a_plain_module_that_predicts_alike():
    data = arrays({"a": 9, "b": 3})
    for task in (motet.testing.batch_norm().task, motet.testing.dropout().task):
        run = motet.run(motet.FedPer(batch_size=4), task, data, rounds=2)
        x = data.examples("a", "test").x
        module = run.model("a")
        assert type(module) is type(task.build())
        torch.testing.assert_close(module(x).softmax(-1), run.predict("a", x))


def test_predictions_take_lists_and_arrays():
    run = motet.run(motet.FedAvg(), TASK, arrays({"a": 4}), rounds=1)
    x = [[0.0, 1.0, 2.0, 3.0]]
    assert torch.equal(run.predict("a", x), run.predict("a", np.array(x)))


def test_run_clients_is_a_mapping_of_everybody():
    run = motet.run(motet.FedPer(), TASK, arrays({"b": 4, "a": 3}), rounds=1, cohort=1)
    assert list(run.clients) == ["a", "b"]
    assert len(run.clients) == 2
    assert "z" not in run.clients


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_new_client_is_served_like_one_of_the_federation_that_never_trained(backend):
    data = arrays({"a": 6, "b": 5})
    run = motet.run(motet.FedAvgFT(batch_size=None), TASK, data, rounds=2, backend=backend)
    support, x = data.examples("a", "train"), data.examples("a", "test").x
    assert_close(run.adapt(*support).predict(x), run.predict("a", x))
    assert_close(run.adapt(*map(np.asarray, support)).model()(x).softmax(-1), run.predict("a", x))


@pytest.mark.parametrize("backend", BACKENDS)
def test_whoever_never_trained_fits_its_private_part_alone(backend):
    data, task = arrays({"a": 9, "b": 5}), motet.testing.batch_norm().task
    run = motet.run(motet.FedPer(), task, data, rounds=1, cohort=1, backend=backend)
    (late,) = set(data.clients) - set(run.setting.store)
    head, method = task.select("head"), run.setting.method
    walked = run.setting.data(late, run.setting.serving_plans("after_adapt"), 1)["adapt"]
    whole = run.server | run.clients[late]
    expected = motet.fit(task, whole, walked, method.optimizer, train=head)
    assert_same(tree.drop(run.personal(late), head), run.server)
    assert_close(run.personal(late), expected)
    new = run.adapt(*data.examples(late, "train")).personal
    assert_same(tree.drop(new, head), run.server)


def test_a_round_is_evaluated_while_it_is_the_current_one():
    first, *_ = seen = list(motet.rounds(motet.FedAvg(), TASK, arrays({"a": 4}), rounds=2))
    assert seen[-1].evaluate("val").round == 2
    with pytest.raises(StateError, match="round 1 has passed: the run is at round 2"):
        first.evaluate()


# -- what is refused, and how -------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "error", "sentence"),
    [
        ({"rounds": -1}, RequestError, "rounds must be 0 or more; got -1"),
        ({"cohort": 3}, CohortError, "there are 2 clients"),
        ({"init": {"hed.bias": [0, 0, 0]}}, StructureError, r"init= names \['hed.bias'\]"),
        (
            {"init_clients": {"z": {}}},
            RequestError,
            'init_clients= names "z", which is not a client',
        ),
        (
            {"init_clients": {"a": {"head.bias": [0, 0, 0]}}},
            StructureError,
            r'init_clients\["a"\] names .*which a client of fedavg does not keep',
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, error, sentence):
    with pytest.raises(error, match=sentence):
        motet.run(motet.FedAvg(), TASK, arrays({"a": 4, "b": 3}), **({"rounds": 1} | settings))


@pytest.mark.parametrize(
    ("build", "loss", "sentence"),
    [
        (
            lambda: nn.Linear(4, 2),
            "cross_entropy",
            "labels run from 0 to 2, but the network has 2 outputs",
        ),
        (lambda: nn.Linear(4, 1), "binary_cross_entropy", "the data have 3 classes"),
    ],
)
def test_labels_outside_the_networks_outputs_are_refused(build, loss, sentence):
    with pytest.raises(DataError, match=sentence):
        start(motet.FedAvg(), Task(build=build, loss=loss), arrays({"a": 4}), rounds=1)


def test_a_network_that_scores_other_positions_than_the_data_have_is_refused():
    x = np.zeros((4, 5), np.int64)
    data = from_arrays({"a": (x, x)})
    last = Task(build=lambda: build("char-lstm", shape=(5,), classes=3, predict="last", hidden=2))
    with pytest.raises(DataError, match=r"have 5 targets per example, .* scores one target: .*pre"):
        start(motet.FedAvg(), last, data, rounds=1)


def test_real_targets_under_cross_entropy_are_refused():
    data = from_arrays({"a": (np.zeros((2, 4), "float32"), np.array([0.5, 1.5]))})
    with pytest.raises(DataError, match=r'whole-number labels.*loss="mse"'):
        start(motet.FedAvg(), TASK, data, rounds=1)


def test_an_unknown_client_split_or_point_is_refused_with_what_exists():
    run = motet.run(motet.FedAvg(), TASK, arrays({"ann": 4, "bob": 3}), rounds=0)
    with pytest.raises(RequestError, match='no client is called "ana"; did you mean "ann"'):
        run.predict("ana", torch.ones(1, 4))
    with pytest.raises(RequestError, match='no split is called "tets"; did you mean "test"'):
        run.evaluate("tets")
    with pytest.raises(RequestError, match='no point is called "after"'):
        run.evaluate(point="after")


def test_inputs_of_another_shape_are_refused_with_the_expected_one():
    run = motet.run(motet.FedAvg(), TASK, arrays({"a": 4}), rounds=0)
    with pytest.raises(RequestError, match=r"shape \[examples, 4\]; got \(2, 5\)"):
        run.predict("a", torch.ones(2, 5))


def test_a_predictor_of_several_networks_is_no_module():
    class Mixture(motet.FedAvg):
        one_network = False

    run = motet.run(Mixture(), TASK, arrays({"a": 4}), rounds=0)
    with pytest.raises(CapabilityError, match=r"more than one network; use run\.predict"):
        run.model("a")


def test_a_point_a_method_does_not_have_is_refused_by_name():
    run = motet.run(ToyAMP(), TASK, arrays({"a": 4}), rounds=0)
    with pytest.raises(CapabilityError, match="toy-amp has no predictor before adaptation"):
        run.evaluate(point="after_broadcast")
