"""L2GD: local steps, and at random times a step towards the mean."""

import pytest
import torch
from torch.testing import assert_close

import motet
from motet import Local, Sgd
from motet.errors import CapabilityError, RequestError
from motet.methods.l2gd import L2GD, Call, mixed
from motet.testing.worlds import quadratic, ragged

BOTH = pytest.mark.parametrize("backend", ["serial", "vectorized"])


def run(method, world, backend="serial", rounds=1, **more):
    return motet.run(method, world.task, world.data, rounds=rounds, backend=backend, **more)


def test_mixing_preserves_the_mean():
    values = torch.tensor([1.0, 4.0, -2.0], dtype=torch.float64)
    call = Call({"w": values.mean()}, torch.tensor(0.3), torch.tensor(1))
    moved = torch.stack([mixed({"w": v}, call)["w"] for v in values])
    assert moved.mean().item() == pytest.approx(values.mean().item(), abs=1e-15)
    assert_close(moved, values + 0.3 * (values.mean() - values))


def test_repeated_mixing_is_one_longer_step():
    method = L2GD(lam=0.5, p=0.4)
    value, mean = 1.0, 5.0
    for _ in range(3):
        value += method.mixing * (mean - value)
    pull = 1 - (1 - method.mixing) ** 3
    assert 1.0 + pull * (mean - 1.0) == pytest.approx(value)


@BOTH
def test_a_round_is_a_pull_and_then_the_drawn_number_of_local_steps(backend):
    world = quadratic({"a": [1.0], "b": [5.0]})
    method = L2GD(lam=0.5, p=0.3, optimizer=Sgd(lr=0.1), batch_size=None)
    course = motet.rounds(method, world.task, world.data, rounds=3, backend=backend, seed=4)
    state, mean = {"a": 0.0, "b": 0.0}, 0.0
    start = run(method, world, rounds=0, seed=4).server["w"].item()
    state, mean = dict.fromkeys(state, start), start
    for done in course:
        for client, target in (("a", 1.0), ("b", 5.0)):
            state[client] += done.notes["pull"] * (mean - state[client])
            for _ in range(done.notes["local_steps"]):
                state[client] -= 0.1 * (state[client] - target)
        mean = sum(state.values()) / 2
        assert done.server["w"].item() == pytest.approx(mean, abs=1e-5)
        assert done.run.clients["a"]["w"].item() == pytest.approx(state["a"], abs=1e-5)


def test_the_number_of_local_steps_varies_and_has_the_right_mean():
    world = quadratic({"a": [1.0]})
    method = L2GD(p=0.25, lam=0.1, batch_size=None)
    drawn = [
        done.notes["local_steps"]
        for done in motet.rounds(method, world.task, world.data, rounds=200, backend="serial")
    ]
    assert len(set(drawn)) > 4
    assert 2.3 < sum(drawn) / len(drawn) < 4.2  # 1/p - 1 = 3, at least 1


@BOTH
def test_without_mixing_the_models_are_those_of_local_training(backend):
    world = quadratic({"a": [1.0], "b": [5.0]})
    method = L2GD(lam=0.0, p=0.5, batch_size=None)
    course = list(motet.rounds(method, world.task, world.data, rounds=10, backend=backend))
    taken = sum(done.notes["local_steps"] for done in course)
    local = run(Local(batch_size=None, steps=taken), world, backend)
    for client in ("a", "b"):
        assert_close(course[-1].run.clients[client], local.clients[client], rtol=0, atol=1e-6)


def test_mixing_draws_the_models_together():
    world = quadratic({"a": [1.0], "b": [5.0]})
    apart = run(L2GD(lam=0.0, p=0.5, batch_size=None), world, rounds=40)
    close = run(L2GD(lam=5.0, p=0.5, batch_size=None), world, rounds=40)
    gap = {
        m: abs(r.clients["b"]["w"] - r.clients["a"]["w"]).item()
        for m, r in (("apart", apart), ("close", close))
    }
    assert gap["close"] < gap["apart"] / 2


def test_impossible_knobs_are_refused_with_the_reason():
    with pytest.raises(RequestError, match="inside"):
        L2GD(p=1.0)
    with pytest.raises(RequestError, match="towards the mean"):
        L2GD(p=0.01, lam=10.0)
    with pytest.raises(CapabilityError, match="plain SGD"):
        L2GD(optimizer=Sgd(lr=0.1, momentum=0.9))
    with pytest.raises(RequestError, match="set p="):
        L2GD(epochs=2)
    assert run(L2GD(lam=0.0), ragged(), rounds=0).warnings


@BOTH
def test_only_the_steps_that_were_drawn_are_counted(backend):
    world = quadratic({"a": [1.0, 1.0], "b": [5.0]})
    course = motet.rounds(
        L2GD(p=0.3, batch_size=None), world.task, world.data, rounds=4, backend=backend
    )
    for done in course:
        assert done.gradients == 3 * done.notes["local_steps"]
