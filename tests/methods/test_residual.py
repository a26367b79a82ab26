"""Federated residual learning: the outputs of a shared and a local model add."""

import pytest
import torch
from arithmetic import BACKENDS
from torch import nn
from toys import assert_close, assert_same
from two_layers import differ, finish

import motet
from motet import FedAvg, Local, Sgd
from motet._core.tree import pick, slot
from motet.errors import CapabilityError
from motet.methods._fedalt import FedAlt
from motet.methods._residual import ResidualFL
from motet.models._surgery.sum_model import combined
from motet.testing._worlds import TinyNet, World, batch_norm, quadratic, ragged, ragged_data

BOTH = pytest.mark.parametrize("backend", BACKENDS)


def silent(state):
    """Set a model's last layer to 0."""
    return {k: torch.zeros_like(v) if k.startswith("head") else v for k, v in state.items()}


@BOTH
def test_one_round_by_hand_each_model_fits_what_the_other_leaves(backend):
    world = quadratic({"a": [1.0], "b": [5.0]})
    method = ResidualFL(optimizer=Sgd(lr=0.1), batch_size=None, steps=2)
    run = finish(method, world, backend, rounds=1, init={"w": [2.0]})
    shared = []
    for client, target in (("a", 1.0), ("b", 5.0)):
        u, v = 2.0, 0.0
        for _ in range(2):
            v -= 0.1 * (u + v - target)
        for _ in range(2):
            u -= 0.1 * (u + v - target)
        assert run.clients[client]["own/w"].item() == pytest.approx(v)
        shared.append(u)
    assert run.server["w"].item() == pytest.approx(sum(shared) / 2)
    assert run.predict("a", torch.zeros(1, 1)).item() == pytest.approx(
        run.server["w"].item() + run.clients["a"]["own/w"].item()
    )


@BOTH
def test_it_is_fedalt_on_a_combined_network(backend):
    world, settings = batch_norm(), {"batch_size": 4, "epochs": 2}
    norm = lambda: TinyNet(nn.BatchNorm1d(5), bias=False)  # noqa: E731
    summed = World("summed", motet.Task(combined(norm, norm, start=0.0)), ragged_data())
    run = finish(ResidualFL(personal_epochs=3, **settings), world, backend, cohort=3)
    start = run.setting.initial
    init = {f"shared.{k}": v for k, v in start.items()}
    init |= {f"local.{k}": v for k, v in silent(start).items()}
    alt = FedAlt(personal=("local",), personal_epochs=3, shared_epochs=2, batch_size=4)
    other = finish(alt, summed, backend, cohort=3, init=init)
    assert_same({f"shared.{k}": v for k, v in run.server.items()}, other.server)
    for client in world.data.clients:
        kept = slot("own", run.clients[client])
        assert_same({f"local.{k}": v for k, v in kept.items()}, other.clients[client])


@BOTH
def test_a_local_model_that_stays_at_0_leaves_fedavg(backend):
    world, settings = batch_norm(), {"epochs": 2, "batch_size": 4}
    run = finish(ResidualFL(personal_epochs=0, **settings), world, backend, cohort=3)
    fedavg = finish(FedAvg(**settings), world, backend, cohort=3)
    assert_same(run.server, fedavg.server)
    x = world.data.examples("many", "test").x
    assert_close(run.predict("many", x), fedavg.predict("many", x))
    assert "fedavg" in run.warnings[0]


@BOTH
def test_a_shared_model_that_stays_at_0_leaves_local(backend):
    world = ragged()
    start = silent(finish(Local(), world, rounds=0).setting.initial)
    settings = {"backend": backend, "init": start, "cohort": 3}
    method = ResidualFL(epochs=0, personal_epochs=2, batch_size=None)
    run = finish(method, world, **settings)
    local = finish(Local(epochs=2, batch_size=None), world, **settings)
    for client in world.data.clients:
        assert_close(slot("own", run.clients[client]), local.clients[client])


@BOTH
def test_everybody_starts_at_the_shared_model(backend):
    # A local model with an output of its own would corrupt the first steps of the shared one.
    world = ragged()
    run = finish(ResidualFL(), world, backend, rounds=0)
    x = world.data.examples("many", "test").x
    shared = world.task.predict(run.setting.initial, x)
    for client in world.data.clients:
        torch.testing.assert_close(run.predict(client, x, "after_broadcast"), shared)


def test_a_network_that_cannot_start_at_0_is_refused():
    task = motet.Task(lambda: nn.Sequential(nn.Linear(4, 3), nn.Softmax(-1)))
    with pytest.raises(CapabilityError, match="output of 0"):
        motet.run(ResidualFL(), task, ragged_data(), rounds=0)


@BOTH
def test_while_one_model_trains_the_other_is_frozen_bit_for_bit(backend):
    world, heavy = batch_norm(), Sgd(lr=0.1, momentum=0.9, weight_decay=0.1)
    own = finish(ResidualFL(epochs=0, personal_epochs=2, optimizer=heavy), world, backend, rounds=1)
    assert_same(own.server, own.setting.initial)
    fresh = own.setting.fresh_client("many")
    assert differ(own.clients["many"], fresh)
    shared = finish(ResidualFL(personal_epochs=0, optimizer=heavy), world, backend, rounds=1)
    assert_same(shared.clients["many"], fresh)


@BOTH
def test_a_local_head_borrows_the_shared_body(backend):
    world = ragged()
    run = finish(ResidualFL(personal=("head",)), world, backend)
    assert set(run.clients["many"]) == {"own/head.weight", "own/head.bias"}
    x = world.data.examples("many", "test").x
    both = [run.server, run.server | slot("own", run.clients["many"])]
    scores = sum(world.task.outputs(model, x) for model in both)
    torch.testing.assert_close(run.predict("many", x), scores.softmax(-1))


@BOTH
def test_a_new_client_fits_the_residual_of_the_shared_model(backend):
    world = quadratic({"a": [1.0], "b": [5.0]})
    method = ResidualFL(optimizer=Sgd(lr=0.1), batch_size=None, adapt_epochs=3)
    run = finish(method, world, backend, rounds=2)
    u, v = run.server["w"].item(), 0.0
    for _ in range(3):
        v -= 0.1 * (u + v - 9.0)
    newcomer = run.adapt(torch.zeros(1, 1), torch.tensor([9.0])).personal
    assert_same(pick(newcomer, run.server), run.server)
    assert newcomer["own/w"].item() == pytest.approx(v, abs=1e-5)


def test_the_local_model_changes_what_the_shared_one_learns():
    world = ragged()
    usual = finish(ResidualFL(), world)
    assert differ(usual.server, finish(FedAvg(), world).server)
    assert differ(usual.server, finish(ResidualFL(personal_epochs=4), world).server)
    slow = finish(ResidualFL(personal_optimizer=Sgd(lr=0.01)), world)
    assert differ(usual.server, slow.server)
    assert not usual.warnings
