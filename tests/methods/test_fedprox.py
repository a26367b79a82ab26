"""FedProx against arithmetic and FedAvg."""

from __future__ import annotations

import pytest
from arithmetic import BACKENDS, BOWL, NORMED, bowls, classes, differ, finish, uploads
from toys import assert_same

from motet import FedAvg, Sgd
from motet.errors import RequestError
from motet.methods._fedprox import FedProx


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


def walk(start, optimum, mu, lr, steps, momentum=0.0):
    """Walk down (w - optimum)^2 / 2 + mu / 2 (w - start)^2."""
    w, velocity = start, 0.0
    for _ in range(steps):
        velocity = momentum * velocity + (w - optimum) + mu * (w - start)
        w -= lr * velocity
    return w


def test_without_a_pull_it_is_fedavg_to_the_last_bit(backend):
    data, settings = classes(), {"epochs": 2, "batch_size": 4}
    prox, avg = FedProx(mu=0.0, **settings), FedAvg(**settings)
    assert_same(
        finish(prox, NORMED, data, backend, rounds=2).server,
        finish(avg, NORMED, data, backend, rounds=2).server,
    )


@pytest.mark.parametrize("mu", [0.1, 100.0])
def test_the_first_step_is_fedavgs_for_any_mu(mu, backend):
    data = classes()
    came = finish(FedProx(mu=mu, steps=1), NORMED, data, backend)
    assert_same(came.server, finish(FedAvg(steps=1), NORMED, data, backend).server)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_each_step_adds_mu_times_the_way_from_the_received_model(momentum, backend):
    """With momentum too: the pull is a part of the gradient, not added behind the velocity."""
    data = bowls(a=(1.0, 3.0, 1), b=(1.0, -1.0, 3))
    method = FedProx(mu=0.5, steps=4, batch_size=None, optimizer=Sgd(lr=0.2, momentum=momentum))
    run = finish(method, BOWL, data, backend, init={"w": 1.0})
    a, b = (walk(1.0, optimum, 0.5, 0.2, 4, momentum) for optimum in (3.0, -1.0))
    assert float(run.server["w"]) == pytest.approx((a + 3 * b) / 4, abs=1e-6)


def test_with_enough_steps_a_client_reaches_the_pulled_optimum(backend):
    """(k a + mu w) / (k + mu), for the curvature k, the optimum a and the received w."""
    data = bowls(a=(4.0, 3.0))
    method = FedProx(mu=2.0, steps=25, batch_size=None)
    run = finish(method, BOWL, data, backend, init={"w": -1.0})
    assert float(run.server["w"]) == pytest.approx((4.0 * 3.0 - 2.0) / 6.0, abs=1e-6)


def test_the_penalty_does_not_compare_two_constants(backend):
    """FedProto's repository compares the received model with itself: mu then changes nothing."""
    data, settings = classes(), {"steps": 3, "batch_size": 4}
    weak, strong = (FedProx(mu=mu, **settings) for mu in (0.1, 1.0))
    assert differ(
        finish(weak, NORMED, data, backend).server, finish(strong, NORMED, data, backend).server
    )


def test_the_default_is_not_fedavg():
    data, settings = classes(), {"epochs": 2, "batch_size": 4}
    assert FedProx().mu > 0
    assert differ(
        finish(FedProx(**settings), NORMED, data).server,
        finish(FedAvg(**settings), NORMED, data).server,
    )


def test_layers_that_stay_at_the_client_are_not_pulled():
    """Only what was received can hold a client: its own norm layers train as FedAvg's do."""
    data, settings = classes((6,)), {"steps": 3, "norm": "local_layers", "batch_size": None}
    free, held = (
        uploads(method, NORMED, data)["c0"]
        for method in (FedAvg(**settings), FedProx(mu=5.0, **settings))
    )
    start = finish(FedAvg(**settings), NORMED, data, rounds=0).personal("c0")
    own = FedProx(norm="local_layers").private_names(NORMED) & NORMED.parameters
    distance = {
        name: [float((state[name] - start[name]).norm()) for state in (free, held)]
        for name in NORMED.parameters
    }
    assert all(distance[name][1] > 0.5 * distance[name][0] for name in own)
    shared = [distance[name] for name in NORMED.parameters - own]
    assert all(near < 0.9 * far for far, near in shared)


def test_a_neutral_mu_is_an_alarm_and_a_negative_one_is_refused():
    warnings = finish(FedProx(mu=0.0), BOWL, bowls(a=(1.0, 1.0)), rounds=0).warnings
    assert any("is fedavg" in warning for warning in warnings)
    assert not finish(FedProx(), BOWL, bowls(a=(1.0, 1.0)), rounds=0).warnings
    with pytest.raises(RequestError, match="mu= must be 0 or more"):
        FedProx(mu=-1.0)


def test_nothing_but_the_model_travels():
    run = finish(FedProx(), NORMED, classes(), rounds=0)
    prox, avg = run.advance(), finish(FedAvg(), NORMED, classes(), rounds=0).advance()
    assert (prox.bytes_up, prox.bytes_down) == (avg.bytes_up, avg.bytes_down)
    assert run.clients["c0"] == {}
