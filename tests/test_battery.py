"""R1 to R12: the twelve things to try on any implementation of the five systems.

Each test can be read by itself, from the numbers to the assertion.
"""

import hashlib

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

import motet
from motet import FedAlt, FedAvg, FedFomo, FedPer, FedSim, Flow, KNNPer, Sgd
from motet._core import tree
from motet._core.neighbours import Datastore, NearestVote
from motet._core.neighbours import mix as mix_predictions
from motet._core.sampling import draw_cohort
from motet.analysis._knn_studies import chosen_lambdas
from motet.methods._fedfomo.mixing import distance, first_order_weights, mix, shares
from motet.methods._flow.routing import routed_steps
from motet.testing._worlds import ragged

BOTH = pytest.mark.parametrize("backend", ["serial", "vectorized"])
FIVE = (FedPer(), FedFomo(models=3, epochs=1), KNNPer(k=3), FedAlt(), FedSim(), Flow())
EACH = pytest.mark.parametrize("method", FIVE, ids=lambda method: method.name)


def test_r1_knn_1_at_lambda_eight_tenths_is_class_1():
    keys = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0], [3.0, 4.0]])
    store = Datastore(keys, torch.tensor([0, 1, 1, 2]), torch.ones(4, dtype=torch.bool))
    neighbours = NearestVote(k=3).ask(store, torch.tensor([[0.0, 1.0]]), classes=3)
    assert_close(neighbours, torch.tensor([[0.3758184, 0.6241816, 0.0]]), rtol=0, atol=1e-6)
    model = torch.tensor([[2.0, 0.5, -1.0]]).softmax(-1)
    assert mix_predictions(model, neighbours, 0.8).argmax() == 1
    # Mixing with scores instead of probabilities would say 0.
    assert mix_predictions(torch.tensor([[2.0, 0.5, -1.0]]), neighbours, 0.8).argmax() == 0


class Sum(nn.Module):
    """u x + v."""

    def __init__(self):
        super().__init__()
        self.u = nn.Parameter(torch.zeros(()))
        self.v = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return self.u * x + self.v


@BOTH
@pytest.mark.parametrize(("method", "expected"), [(FedAlt, 0.225), (FedSim, 0.25)])
def test_r2_alt_1(backend, method, expected):
    task = motet.Task(Sum, loss=lambda out, y: 0.5 * (out - y).square().flatten(), kind="values")
    points = {"1": (np.float32([1]), np.float32([3])), "2": (np.float32([2]), np.float32([1]))}
    data = motet.data.from_arrays(train=points, val=None, test=points)
    one_step = method(personal=("v",), optimizer=Sgd(lr=0.1), batch_size=None, steps=1)
    start = {"u": 0.0, "v": 0.0}
    done = motet.run(one_step, task, data, rounds=1, backend=backend, init=start)
    assert done.server["u"].item() == pytest.approx(expected)


def test_r3_fomo_1():
    def theta(*values):
        return {"theta": torch.tensor(values, dtype=torch.float64)}

    def loss(model, target):
        return 0.5 * (model["theta"] - torch.tensor(target)).square().sum()

    old, models = theta(0, 0), [theta(1, 0), theta(0.5, 2), theta(3, 4)]
    for target, expected in (((1.0, 1.0), (0.8666218, 0.5335130)), ((-1.0, -1.0), (0.0, 0.0))):
        losses = torch.stack([loss(model, target) for model in models])
        apart = torch.stack([distance(model, old, "l2") for model in models])
        w = first_order_weights(loss(old, target), losses, apart)
        new = mix(models, shares(w), otherwise=old)["theta"]
        assert new.tolist() == pytest.approx(expected, abs=1e-7)


def test_r4_flow_2():
    to_global = iter([0.5, 0.25])

    def route(*_):
        p = next(to_global)
        return torch.tensor([[p, 1 - p]], dtype=torch.float64)

    steps = routed_steps(
        lambda x, h: (torch.tanh(0.5 * h[0] + x),),
        lambda x, h: (torch.tanh(-0.5 * h[0] + 2 * x),),
        route,
        [torch.full((1, 1), x, dtype=torch.float64) for x in (1.0, 0.0)],
        (torch.zeros(1, 1, dtype=torch.float64),),
    )
    assert float(steps[-1][0][0]) == pytest.approx(-0.203248, abs=5e-7)


class Product(nn.Module):
    """w_P w_B x."""

    def __init__(self):
        super().__init__()
        self.base = nn.Linear(1, 1, bias=False)
        self.head = nn.Linear(1, 1, bias=False)

    def forward(self, x):
        return self.head(self.base(x))


@BOTH
def test_r5_per_1(backend):
    def half_squared(out, y):
        return 0.5 * (out.flatten() - y).square()

    task = motet.Task(Product, loss=half_squared, kind="values")
    one = (np.float32([[1]]), np.float32([2]))
    two = (np.float32([[2]] * 3), np.float32([1] * 3))
    data = motet.data.from_arrays(train={"1": one, "2": two}, val=None, test={"1": one, "2": two})
    done = motet.run(
        FedPer(personal=("head",), optimizer=Sgd(lr=0.1), batch_size=None),
        task,
        data,
        rounds=1,
        backend=backend,
        init={"base.weight": [[1.0]]},
        init_clients={"1": {"head.weight": [[0.5]]}, "2": {"head.weight": [[-1.0]]}},
    )
    assert done.server["base.weight"].item() == pytest.approx(0.56875)
    assert done.clients["1"]["head.weight"].item() == pytest.approx(0.65)
    assert done.clients["2"]["head.weight"].item() == pytest.approx(-0.4)


@BOTH
def test_r6_methods_meet_where_they_must(backend):
    world = ragged()

    def run(method):
        return motet.run(method, world.task, world.data, rounds=2, backend=backend)

    fedavg, nothing_personal = run(FedAvg()), run(FedPer(personal=()))
    assert_close(nothing_personal.server, fedavg.server, rtol=0, atol=0)
    fedper, fedsim = run(FedPer(head_init="common")), run(FedSim(personal=("head",)))
    assert_close(fedsim.server, fedper.server, rtol=0, atol=0)
    for client in world.data.clients:
        assert_close(fedsim.clients[client], fedper.clients[client], rtol=0, atol=0)
    x = world.data.examples("many", "test").x
    no_neighbours = run(KNNPer(lam=0.0))
    assert_close(no_neighbours.predict("many", x), fedavg.predict("many", x), rtol=0, atol=1e-7)


ALLOWED = {  # what may go up, by name: everything else is a leak
    "fedper": {"body.0.weight", "body.0.bias"},
    "fedalt": {"body.0.weight", "body.0.bias"},
    "fedsim": {"body.0.weight", "body.0.bias"},
    "knn-per": {"body.0.weight", "body.0.bias", "head.weight", "head.bias"},
}


@EACH
def test_r7_only_what_the_table_allows_goes_up(method):
    world = ragged()
    course = motet._engine.federation.start(
        method, world.task, world.data, rounds=1, backend="serial"
    )
    setting, seen = course.setting, []
    info = setting.info(0, tuple(sorted(world.data.clients)))
    down = method.broadcast(course.server, info)
    for client in info.cohort:
        data = setting.data(client, method.plans(), 0)
        own = motet._engine.run_spec.down_for(down, client)
        up, kept = method.client_update(own, setting.client(client), data, setting.task)
        seen.append(up)
        values = {hashlib.sha256(v.numpy().tobytes()).hexdigest() for v in tree.leaves(kept)}
        if method.name in ALLOWED:
            assert set(up) == ALLOWED[method.name]
            sent = {hashlib.sha256(v.numpy().tobytes()).hexdigest() for v in tree.leaves(up)}
            assert not values & sent, "a private tensor went up"
    one = tree.count_bytes(world.task.init(motet.Key(0)))
    if method.name == "fedfomo":  # one model, and at most M weights with their owners and validity
        assert tree.count_bytes(seen[0]) <= one + method.models * 24
    if method.name == "flow":
        names = {name for name, _ in tree.flatten(seen[0])}
        assert not any("local" in name for name in names)
        assert not tree.leaves(kept), "a client of Flow keeps nothing"


def test_r8_each_phase_moves_its_own_group_only():
    world = ragged()
    task, state = world.task, world.task.init(motet.Key(0))
    data = motet._engine.federation.start(FedAlt(), task, world.data, rounds=1).setting.data(
        "many", FedAlt().plans(), 0
    )
    head, body = task.select("head"), set(task.names) - task.select("head")
    steep = Sgd(lr=0.1, momentum=0.9, weight_decay=0.1)

    def digest(tensors):
        return {k: hashlib.sha256(v.numpy().tobytes()).hexdigest() for k, v in tensors.items()}

    for group, others in ((head, body), (body, head)):
        after = motet.fit(task, state, data["personal"], steep, train=group)
        moved = {name for name in state if digest(after)[name] != digest(state)[name]}
        assert moved == set(group)
        assert not moved & set(others)


@pytest.mark.parametrize("method", [KNNPer(k=3), FedFomo(models=3, epochs=1)], ids=lambda m: m.name)
def test_r9_shuffled_test_labels_change_no_choice(method):
    world = ragged()
    train, val, test = (
        {c: world.data.examples(c, split) for c in world.data.clients}
        for split in ("train", "val", "test")
    )

    def choices(test, val=val):
        data = motet.data.from_arrays(train=train, val=val, test=test, classes=3)
        done = motet.run(method, world.task, data, rounds=3, seed=0)
        if method.name == "knn-per":
            return torch.tensor(list(chosen_lambdas(done).values()))
        return done.server.affinity

    def turned(split):
        return {c: (x, (y + 1) % 3) for c, (x, y) in split.items()}

    assert_close(choices(turned(test)), choices(test), rtol=0, atol=0)
    # The same turn of validation labels does change them: the test can fail.
    assert not torch.equal(choices(test, val=turned(val)), choices(test))


def test_r10_everybody_takes_part_and_the_cohort_varies():
    clients = [f"{number:03d}" for number in range(100)]
    cohorts = [draw_cohort(clients, 0.1, number, motet.Key(0)) for number in range(100)]
    assert {client for cohort in cohorts for client in cohort} == set(clients)
    assert len(set(cohorts)) == 100
    assert all(len(cohort) == 10 for cohort in cohorts)


@BOTH
@EACH
def test_r11_evaluating_twice_gives_the_same_and_changes_nothing(method, backend):
    world = ragged()
    done = motet.run(method, world.task, world.data, rounds=1, backend=backend)
    before = [v.clone() for v in tree.leaves(done.server)]
    first, second = done.evaluate(), done.evaluate()
    assert first == second
    assert all(torch.equal(a, b) for a, b in zip(before, tree.leaves(done.server), strict=True))


@BOTH
@EACH
def test_r12_one_example_no_validation_data_one_class(method, backend):
    world = ragged()
    assert world.data.size("one", "train") == 1
    assert world.data.size("unchecked", "val") == 0
    assert len(set(world.data.examples("single", "train").y.tolist())) == 1
    done = motet.run(method, world.task, world.data, rounds=2, backend=backend)
    x = world.data.examples("many", "test").x
    for client in ("one", "unchecked", "single"):
        assert torch.isfinite(done.predict(client, x)).all()
