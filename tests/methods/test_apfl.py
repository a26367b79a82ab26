"""APFL: a learnt mixture of parameters."""

import pytest
import torch
from torch.testing import assert_close

import motet
from motet import FedAvg, Local, Mean, Sgd
from motet.methods._apfl import APFL, mixture
from motet.testing._worlds import TinyNet, quadratic, ragged

BOTH = pytest.mark.parametrize("backend", ["serial", "vectorized"])


def run(method, world, backend="serial", rounds=1, **more):
    return motet.run(method, world.task, world.data, rounds=rounds, backend=backend, **more)


@BOTH
def test_one_step_is_the_papers_three_updates_at_one_point(backend):
    world = quadratic({"a": [1.0]})
    method = APFL(alpha=0.5, alpha_lr=0.2, optimizer=Sgd(lr=0.1), batch_size=None)
    start = {"own/w": [2.0]}
    done = run(method, world, backend, init={"w": [0.0]}, init_clients={"a": start})
    slope = 0.5 * 2.0 + 0.5 * 0.0 - 1.0 + 0.0  # at the mixture 1.0 of v = 2 and w = 0
    assert done.server["w"].item() == pytest.approx(0.0 - 0.1 * (0.0 - 1.0))
    assert done.clients["a"]["own/w"].item() == pytest.approx(2.0 - 0.1 * 0.5 * slope)
    assert done.clients["a"]["alpha"].item() == pytest.approx(0.5 - 0.2 * (2.0 - 0.0) * slope)


@BOTH
def test_the_step_of_alpha_is_the_inner_product_of_the_difference_and_the_slope(backend):
    world = quadratic({"a": [3.0]})
    method = APFL(alpha=0.25, alpha_lr=0.01, optimizer=Sgd(lr=0.1), batch_size=None)
    done = run(method, world, backend, init={"w": [1.0]}, init_clients={"a": {"own/w": [2.0]}})
    slope = (0.25 * 2 + 0.75 * 1) - 3.0
    expected = 0.25 - 0.01 * (2.0 - 1.0) * slope
    assert done.clients["a"]["alpha"].item() == pytest.approx(expected, abs=1e-6)


@BOTH
@pytest.mark.parametrize("alpha", [0.0, 0.4, 1.0])
def test_the_global_model_walks_as_fedavg_whatever_the_mixture(backend, alpha):
    world = ragged()
    fedavg = FedAvg(reduce=Mean(weights="uniform"))
    one, other = (run(m, world, backend, 2, cohort=3) for m in (APFL(alpha=alpha), fedavg))
    assert_close(one.server, other.server, rtol=0, atol=0)


@BOTH
def test_fixed_at_the_ends_it_is_fedavg_and_local(backend):
    world = ragged()
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    global_end = run(APFL(alpha=0.0, adaptive=False), world, backend, 2)
    local_end = run(APFL(alpha=1.0, adaptive=False), world, backend, 2)
    fedavg = run(FedAvg(reduce=Mean(weights="uniform")), world, backend, 2)
    local = run(Local(), world, backend, 2)
    for client in world.data.clients:
        assert_close(global_end.predict(client, x), fedavg.predict(client, x))
        assert_close(local_end.predict(client, x), local.predict(client, x))


def test_parameters_are_mixed_not_outputs():
    # Mixing the outputs of two networks is another method: a known mistake.
    task = motet.Task(TinyNet)
    w, v = task.init(motet.Key(1)), task.init(motet.Key(2))
    x = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
    client = {f"own/{k}": value for k, value in v.items()} | {"alpha": torch.tensor(0.3)}
    mixed = mixture(task, w, client)
    assert_close(mixed["head.bias"], 0.3 * v["head.bias"] + 0.7 * w["head.bias"])
    of_outputs = 0.3 * task.outputs(v, x) + 0.7 * task.outputs(w, x)
    assert (task.outputs(mixed, x) - of_outputs).abs().max() > 1e-3


def test_the_stored_model_is_not_overwritten_by_the_mixture():
    world = quadratic({"a": [1.0]})
    method = APFL(alpha=0.5, adaptive=False, optimizer=Sgd(lr=0.0), batch_size=None)
    done = run(method, world, init={"w": [0.0]}, init_clients={"a": {"own/w": [2.0]}}, rounds=3)
    assert done.clients["a"]["own/w"].item() == 2.0
    assert done.predict("a", torch.zeros(1, 1)).item() == pytest.approx(1.0)


def test_alpha_stays_in_the_unit_interval():
    world = quadratic({"a": [50.0]})
    method = APFL(alpha=0.5, alpha_lr=5.0, optimizer=Sgd(lr=0.1), batch_size=None)
    done = run(method, world, init={"w": [0.0]}, init_clients={"a": {"own/w": [2.0]}})
    assert done.clients["a"]["alpha"].item() == 1.0


def test_a_mixture_that_mixes_nothing_is_announced():
    world = ragged()
    assert "FedAvg" in run(APFL(alpha=0.0, adaptive=False), world, rounds=0).warnings[0]
    assert "Local" in run(APFL(alpha=1.0, adaptive=False), world, rounds=0).warnings[0]
    assert not run(APFL(), world, rounds=0).warnings
    with pytest.raises(motet.errors.RequestError, match=r"\[0, 1\]"):
        APFL(alpha=1.5)
