"""FedRep: the head is solved for the body, then the body improved for the head."""

import pytest
import torch
from arithmetic import BACKENDS
from torch.nn.functional import one_hot
from toys import assert_same
from two_layers import (
    PRODUCT,
    base_step,
    differ,
    everything,
    finish,
    head_step,
    products,
)

import motet
from motet import FedAvg, FedPer, Local, Mean, Sgd
from motet._core.tree import drop, pick
from motet.methods._fedalt import FedAlt
from motet.methods._fedbabu import FedBABU
from motet.methods._fedrep import FedRep
from motet.methods._fedsim import FedSim
from motet.testing._worlds import batch_norm, ragged

BOTH = pytest.mark.parametrize("backend", BACKENDS)
EVERYTHING = ("body", "head")
HEAVY = Sgd(lr=0.1, momentum=0.9, weight_decay=0.1)


@BOTH
def test_one_round_by_hand_the_body_meets_the_new_head(backend):
    data = products(a=(1, 2, 1), b=(2, 1, 3))
    method = FedRep(head_epochs=2, optimizer=Sgd(lr=0.1), batch_size=None)
    run = motet.run(method, PRODUCT, data, rounds=1, backend=backend, init={"base": 0.5})
    bodies = {}
    for client, (x, y) in {"a": (1, 2), "b": (2, 1)}.items():
        head = 1.0
        for _ in range(2):
            head = head_step(0.5, head, x, y, 0.1)
        assert run.clients[client]["head"].item() == pytest.approx(head)
        bodies[client] = base_step(0.5, head, x, y, 0.1)
    expected = (1 * bodies["a"] + 3 * bodies["b"]) / 4
    assert run.server["base"].item() == pytest.approx(expected)


@BOTH
def test_a_client_is_served_a_head_that_fits_the_body_as_it_is_now(backend):
    # Scoring the new body with the head of the round before is a known mistake.
    data = products(a=(1, 2, 1), b=(2, 1, 3))
    method = FedRep(head_epochs=1, optimizer=Sgd(lr=0.2), batch_size=None, adapt_epochs=200)
    run = motet.run(method, PRODUCT, data, rounds=2, backend=backend)
    base = run.server["base"].item()
    for client, (x, y) in {"a": (1, 2), "b": (2, 1)}.items():
        stale, served = (run.personal(client, p) for p in ("after_broadcast", "after_adapt"))
        assert served["base"].item() == base
        assert served["head"].item() == pytest.approx(y / (base * x), abs=1e-5)
        assert stale["head"].item() == run.clients[client]["head"].item()
        assert abs(stale["head"].item() - y / (base * x)) > 1e-3


def test_heads_are_never_averaged_and_an_idle_client_keeps_the_common_start():
    # The authors' code lets clients that were never sampled point at the server's average head.
    world = ragged()
    run = finish(FedRep(), world, rounds=3, cohort=2, seed=1)
    assert not [name for name in run.server if name.startswith("head")]
    idle = set(world.data.clients) - set(run.setting.store)
    start = pick(run.setting.initial, world.task.select("head"))
    assert idle
    for client in idle:
        assert_same(run.clients[client], start)
    for client in run.setting.store:
        assert differ(run.clients[client], start)


@BOTH
def test_the_body_is_frozen_bit_for_bit_while_the_head_is_trained(backend):
    world = batch_norm()
    method = FedRep(epochs=0, optimizer=HEAVY)
    run = finish(method, world, backend, rounds=1)
    assert_same(run.server, pick(run.setting.initial, run.server))
    served = run.personal("many")
    assert_same(pick(served, run.server), run.server)


@BOTH
def test_without_a_head_it_is_fedavg(backend):
    world, settings = batch_norm(), {"epochs": 2, "batch_size": 4}
    rep = finish(FedRep(personal=(), **settings), world, backend, cohort=3)
    assert_same(everything(rep), everything(finish(FedAvg(**settings), world, backend, cohort=3)))
    assert "fedavg" in rep.warnings[0]


@BOTH
def test_with_everything_in_the_head_it_is_local(backend):
    world, settings = ragged(), {"batch_size": None}
    rep = finish(FedRep(personal=EVERYTHING, head_epochs=3, **settings), world, backend, cohort=3)
    local = finish(Local(epochs=3, **settings), world, backend, cohort=3)
    assert_same(dict(rep.clients), dict(local.clients))
    assert "local" in rep.warnings[0]


@BOTH
def test_it_is_fedalt(backend):
    world, settings = batch_norm(), {"optimizer": HEAVY, "batch_size": 4}
    rep = finish(FedRep(head_epochs=3, epochs=2, **settings), world, backend, cohort=3)
    alt = finish(FedAlt(personal_epochs=3, shared_epochs=2, **settings), world, backend, cohort=3)
    assert_same(everything(rep), everything(alt))


def test_one_joint_phase_would_be_fedper_and_fedsim():
    world, settings = batch_norm(), {"batch_size": 4}
    per = finish(FedPer(head_init="common", **settings), world, cohort=3)
    sim = finish(FedSim(**settings), world, cohort=3)
    assert_same(everything(per), everything(sim))
    assert differ(everything(per), everything(finish(FedRep(**settings), world, cohort=3)))


@BOTH
def test_without_head_epochs_the_body_walks_as_fedbabus(backend):
    world = ragged()
    rep = finish(FedRep(head_epochs=0, reduce=Mean(weights="uniform")), world, backend, cohort=3)
    assert_same(everything(rep), everything(finish(FedBABU(), world, backend, cohort=3)))
    assert "fedbabu" in rep.warnings[0]


def test_head_epochs_change_the_body():
    world = ragged()
    few, many = (finish(FedRep(head_epochs=n), world, rounds=1) for n in (1, 5))
    assert differ(few.server, many.server)
    assert not many.warnings


@BOTH
def test_a_new_client_trains_a_head_from_the_common_start(backend):
    world = ragged()
    run = finish(FedRep(batch_size=None), world, backend, cohort=2)
    own = world.data.examples("few", "train")
    newcomer = run.adapt(*own).personal
    assert_same(pick(newcomer, run.server), run.server)
    weight, bias = (run.setting.initial[f"head.{part}"] for part in ("weight", "bias"))
    features = world.task.features(newcomer, own.x, "head")
    for _ in range(10):
        slope = (features @ weight.T + bias).softmax(-1) - one_hot(own.y, 3)
        weight, bias = weight - 0.1 * slope.T @ features / len(own.y), bias - 0.1 * slope.mean(0)
    torch.testing.assert_close(newcomer["head.weight"], weight)


@BOTH
def test_a_new_client_gets_its_own_norm_layers_where_they_stay_at_home(backend):
    world = batch_norm()
    run = finish(FedRep(norm="local_layers"), world, backend, cohort=2)
    newcomer = run.adapt(*world.data.examples("few", "train")).personal
    assert_same(pick(newcomer, run.server), run.server)
    kept = drop(newcomer, world.task.select("head") | set(run.server))
    assert kept
    assert differ(kept, pick(run.setting.initial, kept))
