"""pFedHN: models that are made."""

import pytest
import torch
from torch.testing import assert_close

import motet
from motet import FedAvg, Key, Mean, Sgd
from motet._core.tree import count_bytes
from motet.errors import RequestError
from motet.methods._bases.hypernetwork import draw_embeddings, draw_hypernetwork, generate
from motet.methods._pfedhn import EMBEDDINGS, PFedHN, changes
from motet.testing._worlds import quadratic, ragged

BOTH = pytest.mark.parametrize("backend", ["serial", "vectorized"])


def run(method, world, backend="serial", rounds=1, **more):
    return motet.run(method, world.task, world.data, rounds=rounds, backend=backend, **more)


@BOTH
@pytest.mark.parametrize("lr", [1.0, 0.3])
def test_a_constant_hypernetwork_is_fedavg_with_a_server_step(backend, lr):
    world = ragged()
    constant = PFedHN(embedding=0, hidden=(), server_optimizer=Sgd(lr=lr))
    fedavg = FedAvg(reduce=Mean(weights="uniform"), server_optimizer=Sgd(lr=lr))
    one = run(constant, world, backend, 3, cohort=4)
    other = run(fedavg, world, backend, 3, cohort=4)
    assert_close(one.personal("many", "after_broadcast"), other.server, rtol=0, atol=1e-6)


def test_the_update_is_the_vector_jacobian_product():
    world = quadratic({"a": [1.0], "b": [5.0]})
    method = PFedHN(embedding=2, hidden=(), server_optimizer=Sgd(lr=0.1), batch_size=None)
    course = motet._engine.federation.start(
        method, world.task, world.data, rounds=1, backend="serial"
    )
    before = course.server
    e, make = before.hyper[EMBEDDINGS], before.hyper["make.w.weight"]
    theta = {c: (make @ e[i] + before.hyper["make.w.bias"]).item() for i, c in enumerate("ab")}
    course.advance()
    # One full-batch step of size 0.1 on (w - a)^2 / 2 changes theta by -0.1 (theta - a).
    change = {c: -0.1 * (theta[c] - target) for c, target in (("a", 1.0), ("b", 5.0))}
    mean = (change["a"] + change["b"]) / 2
    assert_close(course.server.hyper["make.w.bias"], before.hyper["make.w.bias"] + 0.1 * mean)
    for i, client in enumerate("ab"):
        moved = e[i] + 0.1 * change[client] / 2 * make[0]
        assert_close(course.server.hyper[EMBEDDINGS][i], moved)


def test_only_the_embeddings_of_the_cohort_move():
    world = ragged()
    method = PFedHN(server_optimizer=Sgd(lr=0.5))
    course = motet._engine.federation.start(method, world.task, world.data, rounds=1, cohort=2)
    before = course.server.hyper[EMBEDDINGS]
    done = course.advance()
    moved = (course.server.hyper[EMBEDDINGS] - before).abs().sum(1) > 0
    names = sorted(world.data.clients)
    assert {name for name, m in zip(names, moved.tolist(), strict=True) if m} == set(done.cohort)


@BOTH
def test_clients_are_served_models_of_their_own(backend):
    world = ragged()
    done = run(PFedHN(), world, backend, 3)
    one, other = done.personal("many"), done.personal("few")
    assert (one["head.weight"] - other["head.weight"]).abs().max() > 1e-5


def test_the_hypernetwork_never_travels():
    world = ragged()
    (done,) = motet.rounds(PFedHN(), world.task, world.data, rounds=1)
    model = count_bytes(world.task.init(Key(0)))
    assert done.bytes_down == done.bytes_up == model * len(done.cohort)


def test_all_clients_begin_near_the_common_model():
    world = ragged()
    done = run(PFedHN(), world, rounds=0)
    start = run(FedAvg(), world, rounds=0).server
    for client in world.data.clients:
        apart = done.personal(client, "after_broadcast")["head.weight"] - start["head.weight"]
        assert 0 < apart.abs().max() < 0.5


def test_generating_is_linear_in_the_last_layer():
    target = {"w": torch.zeros(2, 3), "b": torch.ones(2)}
    hyper = draw_hypernetwork(target, 4, (5,), Key(0))
    embedding = draw_embeddings(1, 4, Key(1), torch.float32)[0]
    made = generate(hyper, embedding, target)
    z = (hyper["hidden0.weight"] @ embedding).relu()
    assert_close(made["w"], (hyper["make.w.weight"] @ z).view(2, 3))
    assert_close(made["b"], hyper["make.b.weight"] @ z + 1)


def test_a_change_is_measured_from_the_model_that_was_made():
    world = quadratic({"a": [1.0]})
    course = run(PFedHN(), world, rounds=0)
    made = course.personal("a", "after_broadcast")
    assert changes(course.server, {0: {"w": made["w"] + 2.0}})[0]["w"].item() == pytest.approx(2.0)


def test_impossible_knobs_are_refused_and_idle_ones_announced():
    with pytest.raises(RequestError, match="0 or more"):
        PFedHN(embedding=-1)
    with pytest.raises(RequestError, match="nothing to put"):
        PFedHN(embedding=0)
    assert "FedAvg" in run(PFedHN(embedding=0, hidden=()), ragged(), rounds=0).warnings[0]
