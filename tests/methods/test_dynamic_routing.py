"""Dynamic routing, Flow's ablation: two federated sets of parameters, and nothing of a client."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from routed_worlds import LR, changed, digest, finish, parts, world
from torch.testing import assert_close

import motet
from motet import Sgd, Task
from motet.methods._flow.dynamic_routing import DynamicRouting
from motet.methods._flow.method import Flow


@pytest.fixture(params=["serial", "vectorized"])
def backend(request):
    return request.param


def test_dynamic_routing_averages_two_sets_that_start_apart(backend):
    run = finish(DynamicRouting(optimizer=LR), rounds=0, backend=backend)
    names = {name.split(".", 1)[1] for name in run.server if name.startswith("shared.")}
    assert names == {name.split(".", 1)[1] for name in run.server if name.startswith("local.")}
    assert all(not torch.equal(run.server[f"shared.{n}"], run.server[f"local.{n}"]) for n in names)
    assert_close({n: run.server[f"shared.{n}"] for n in names}, dict(run.setting.initial))
    trained = finish(DynamicRouting(optimizer=LR), rounds=1, backend=backend)
    assert changed(run.server, trained.server) == set(run.server)


def test_two_equal_sets_would_stay_equal():
    """Why the second one is drawn by another key."""
    method = DynamicRouting(optimizer=LR, temperature=1.0)
    run = finish(method, rounds=0)
    run.server |= {
        k.replace("shared.", "local."): v.clone()
        for k, v in run.server.items()
        if k.startswith("shared.")
    }
    run.server |= {k: torch.zeros_like(v) for k, v in run.server.items() if k.startswith("policy.")}
    run.advance()
    shared, local, _ = parts(run.server)
    assert_close(shared, local, atol=1e-6, rtol=1e-5)


def test_dynamic_routing_has_no_parameters_of_a_client(backend):
    run = finish(DynamicRouting(optimizer=LR), backend=backend)
    assert all(run.clients[client] == {} for client in run.clients)
    one, other = run.personal("c0"), run.personal("c1")
    assert digest(one) == digest(other)
    assert run.evaluate().values.tolist() == run.evaluate(point="after_broadcast").values.tolist()


def test_dynamic_routing_sends_no_second_copy_of_layers_that_are_not_routed():
    run = finish(DynamicRouting(layers=("head",)), rounds=1)
    second = {name for name in run.server if name.startswith("local.")}
    assert second == {"local.head.weight", "local.head.bias"}
    shared, local, _ = parts(run.personal("c0"))
    assert torch.equal(local["body.weight"], shared["body.weight"])


def test_dynamic_routing_trains_the_routed_network_end_to_end():
    """One client, full batch: plain SGD on the softly routed loss."""
    data, method = (
        world(sizes=(12,)),
        DynamicRouting(optimizer=Sgd(lr=0.2), batch_size=None, epochs=1, temperature=1.0),
    )
    before = finish(method, data=data, rounds=0)
    after = finish(method, data=data, rounds=1)
    x, y = data.examples("c0", "train")
    routed = method.routed(before.setting.task)
    grads = torch.func.grad(lambda s: F.cross_entropy(routed.call(s, x)[0], y))(before.server)
    expected = {k: v - 0.2 * grads[k] for k, v in before.server.items()}
    assert_close(after.server, expected, atol=1e-6, rtol=1e-5)


def test_dynamic_routing_learns():
    data = motet.data.load("digits", motet.data.IID(clients=5), seed=0)
    task = Task(lambda: motet.models.build("mlp", shape=data.shape, classes=10, hidden=[32]))
    run = finish(DynamicRouting(), task, data, "vectorized", rounds=8)
    assert run.evaluate("val").mean > 0.85


def test_the_ablation_is_flow_without_a_local_model():
    assert replace(DynamicRouting(), temperature=1.0).routing == replace(Flow().routing, lam=0.0)
