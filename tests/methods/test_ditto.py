"""Ditto and MR-MTL: tethers to the global model, and to the mean of personal models."""

import pytest
import torch
from torch.testing import assert_close

import motet
from motet import FedAvg, Local, Sgd
from motet.methods._ditto import Ditto
from motet.methods._mr_mtl import MRMTL
from motet.testing._worlds import quadratic, ragged

BOTH = pytest.mark.parametrize("backend", ["serial", "vectorized"])
TARGETS = {"a": [1.0], "b": [4.0, 4.0], "c": [-2.0]}
FULL = {"batch_size": None, "steps": 400, "optimizer": Sgd(lr=0.1)}


def run(method, world, backend="serial", rounds=1, **more):
    return motet.run(method, world.task, world.data, rounds=rounds, backend=backend, **more)


@BOTH
def test_dittos_personal_optimum_lies_between_its_own_and_the_received_model(backend):
    world = quadratic(TARGETS)
    done = run(Ditto(lam=0.5, **FULL), world, backend, init={"w": [3.0]})
    for client, values in TARGETS.items():
        # Where the slopes of the loss and of the tether cancel.
        expected = (values[0] + 0.5 * 3.0) / (1 + 0.5)
        assert done.clients[client]["w"].item() == pytest.approx(expected, abs=1e-5)


@BOTH
def test_the_anchor_is_the_model_as_received_not_as_trained_here(backend):
    world = quadratic({"a": [1.0]})
    method = Ditto(lam=2.0, optimizer=Sgd(lr=0.1), batch_size=None, steps=2)
    done = run(method, world, backend, init={"w": [0.0]})
    first = 0.0 - 0.1 * (0.0 - 1.0 + 2.0 * (0.0 - 0.0))
    second = first - 0.1 * (first - 1.0 + 2.0 * (first - 0.0))
    assert done.clients["a"]["w"].item() == pytest.approx(second, abs=1e-6)


@BOTH
@pytest.mark.parametrize("lam", [0.0, 0.7, 5.0])
def test_dittos_global_model_walks_as_fedavg_whatever_the_tether(backend, lam):
    world = ragged()
    ditto, fedavg = (run(m, world, backend, 2, cohort=3) for m in (Ditto(lam=lam), FedAvg()))
    assert_close(ditto.server, fedavg.server, rtol=0, atol=0)


@BOTH
def test_without_a_tether_ditto_is_local(backend):
    world = ragged()
    ditto, local = (run(m, world, backend, 3, cohort=3) for m in (Ditto(lam=0.0), Local()))
    for client in world.data.clients:
        assert_close(ditto.clients[client], local.clients[client], rtol=0, atol=0)


@pytest.mark.parametrize("method", [Ditto, MRMTL])
def test_the_tether_changes_the_personal_model(method):
    # A penalty outside the graph would leave the personal model at Local's: a known mistake.
    world = ragged()
    loose, tight = (run(method(lam=lam, steps=3), world, rounds=2) for lam in (0.01, 2.0))
    distance = (loose.clients["one"]["head.weight"] - tight.clients["one"]["head.weight"]).abs()
    assert distance.max() > 1e-3


def test_a_client_that_is_not_sampled_keeps_its_model_bit_for_bit():
    world = ragged()
    course = motet.rounds(Ditto(), world.task, world.data, rounds=4, cohort=2, seed=3)
    before = None
    for done in course:
        now = {c: done.run.clients[c] for c in world.data.clients}
        if before is not None:
            for client in set(world.data.clients) - set(done.cohort):
                assert_close(now[client], before[client], rtol=0, atol=0)
        before = now


@BOTH
def test_a_new_ditto_client_starts_from_the_global_model(backend):
    world = quadratic(TARGETS)
    method = Ditto(lam=1.0, optimizer=Sgd(lr=0.1), batch_size=None, adapt_epochs=400)
    done = run(method, world, backend, rounds=2)
    w = done.server["w"].item()
    served = done.adapt(torch.zeros(1, 1), torch.tensor([7.0])).predict(torch.zeros(1, 1))
    assert served.item() == pytest.approx((7.0 + w) / 2, abs=1e-4)


@BOTH
def test_mr_mtl_settles_between_its_own_optimum_and_the_mean(backend):
    world = quadratic({"a": [1.0], "b": [5.0]})
    method = MRMTL(lam=0.5, optimizer=Sgd(lr=0.2), batch_size=None, steps=50)
    done = run(method, world, backend, rounds=30)
    # The mean of all stays the mean of the optima, here 3; each is pulled towards it.
    assert done.server["w"].item() == pytest.approx(3.0, abs=1e-4)
    assert done.clients["a"]["w"].item() == pytest.approx((1 + 0.5 * 3) / 1.5, abs=1e-3)


def test_without_a_tether_mr_mtl_is_local():
    world = ragged()
    one, other = (run(m, world, rounds=2) for m in (MRMTL(lam=0.0), Local()))
    for client in world.data.clients:
        assert_close(one.clients[client], other.clients[client], rtol=0, atol=0)


@pytest.mark.parametrize("method", [Ditto, MRMTL])
def test_a_cut_tether_is_announced_and_a_negative_one_refused(method):
    world = ragged()
    assert "Local" in run(method(lam=0.0), world, rounds=0).warnings[0]
    assert not run(method(), world, rounds=0).warnings
    with pytest.raises(motet.errors.RequestError, match="0 or more"):
        method(lam=-1.0)
