"""pFedMe: local steps along Moreau envelopes."""

import pytest
import torch
from torch.testing import assert_close

import motet
from motet import FedAvg, Mean, Sgd
from motet.methods._pfedme import PFedMe
from motet.testing._worlds import quadratic, ragged

BOTH = pytest.mark.parametrize("backend", ["serial", "vectorized"])


def run(method, world, backend="serial", rounds=1, **more):
    return motet.run(method, world.task, world.data, rounds=rounds, backend=backend, **more)


@BOTH
def test_with_one_inner_step_it_is_fedavg_with_the_product_of_the_rates(backend):
    world = ragged()
    method = PFedMe(lam=4.0, inner_steps=1, inner_lr=0.05, optimizer=Sgd(lr=0.2))
    fedavg = FedAvg(optimizer=Sgd(lr=4.0 * 0.05 * 0.2), reduce=Mean(weights="uniform"))
    one, other = (run(m, world, backend, 2) for m in (method, fedavg))
    assert_close(one.server, other.server, rtol=0, atol=1e-6)


@BOTH
def test_one_round_on_a_quadratic_is_the_arithmetic(backend):
    world = quadratic({"a": [1.0]})
    method = PFedMe(lam=2.0, inner_steps=2, inner_lr=0.1, optimizer=Sgd(lr=0.25), batch_size=None)
    done = run(method, world, backend, init={"w": [0.0]})
    theta = 0.0
    for _ in range(2):
        theta -= 0.1 * ((theta - 1.0) + 2.0 * (theta - 0.0))
    local = 0.0 - 0.25 * 2.0 * (0.0 - theta)
    assert done.server["w"].item() == pytest.approx(local, abs=1e-6)
    personal = local
    for _ in range(2):
        personal -= 0.1 * ((personal - 1.0) + 2.0 * (personal - local))
    assert done.clients["a"]["w"].item() == pytest.approx(personal, abs=1e-6)


@BOTH
def test_many_inner_steps_find_the_proximal_point(backend):
    world = quadratic({"a": [4.0]})
    method = PFedMe(lam=3.0, inner_steps=200, inner_lr=0.1, optimizer=Sgd(lr=0.0), batch_size=None)
    done = run(method, world, backend, init={"w": [0.0]})
    assert done.clients["a"]["w"].item() == pytest.approx((4.0 + 3.0 * 0.0) / (1 + 3.0), abs=1e-5)


def test_the_personal_model_is_a_value_not_an_alias():
    # Returning live tensors makes the "personal" score that of the global model: a known mistake.
    world = ragged()
    method = PFedMe(lam=2.0, inner_steps=3)
    course = motet.rounds(method, world.task, world.data, rounds=3, cohort=3, seed=1)
    first = next(course)
    kept = {c: first.run.clients[c]["head.weight"].clone() for c in first.cohort}
    for client in kept:
        assert (kept[client] - first.server["head.weight"]).abs().max() > 1e-4
    second = next(course)
    for client in set(kept) - set(second.cohort):
        assert_close(second.run.clients[client]["head.weight"], kept[client], rtol=0, atol=0)


def test_personal_and_global_models_score_differently():
    world = ragged()
    done = run(PFedMe(lam=2.0, inner_steps=5, inner_lr=0.2), world, rounds=2)
    x = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
    apart = done.predict("one", x) - world.task.predict(done.server, x)
    assert apart.abs().max() > 1e-4


def test_the_servers_step_is_the_papers_beta():
    world = quadratic({"a": [1.0], "b": [3.0]})
    half = PFedMe(lam=2.0, batch_size=None, server_optimizer=Sgd(lr=0.5))
    whole = PFedMe(lam=2.0, batch_size=None)
    one, other = (run(m, world, init={"w": [0.0]}) for m in (half, whole))
    assert one.server["w"].item() == pytest.approx(other.server["w"].item() / 2, abs=1e-6)


def test_what_would_never_move_is_refused_and_what_would_diverge_announced():
    for wrong in ({"lam": 0.0}, {"inner_steps": 0}):
        with pytest.raises(motet.errors.RequestError, match="never"):
            PFedMe(**wrong)
    assert "diverge" in run(PFedMe(lam=50.0, inner_lr=0.1), ragged(), rounds=0).warnings[0]
