"""SCAFFOLD against arithmetic, FedAvg and gradient descent; the laws of its control variates."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from arithmetic import BACKENDS, BOWL, NORMED, RAMP, bowls, classes, differ, finish, ramps
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import arrays, assert_close, assert_same

import motet
from motet import Adam, FedAvg, Mean, Sgd
from motet._core import tree
from motet._core.schedules import Exponential, Linear
from motet.errors import CapabilityError, RequestError
from motet.methods._scaffold import Scaffold

UNIFORM = Mean(weights="uniform")
UNEVEN = {"a": (1.0, 4.0, 1), "b": (5.0, -2.0, 3), "c": (0.5, 1.0, 2)}
OPTIMUM = (4.0 - 10.0 + 0.5) / 6.5  # of the mean of the clients' losses


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


def own_control(run, client):
    return tree.slot("control", run.clients[client])


def mean_control(run):
    """Average the c_i of everybody registered; clients that never trained have 0."""
    controls = tree.stack([own_control(run, client) for client in run.clients])
    return tree.tree_map(lambda leaf: leaf.mean(0), controls)


# ---- Reductions --------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["I", "II"])
def test_while_controls_are_zero_it_is_fedavg_with_equal_clients(option, backend):
    data, settings = classes(), {"epochs": 2, "batch_size": 4}
    run = finish(Scaffold(option=option, **settings), NORMED, data, backend)
    avg = finish(FedAvg(reduce=UNIFORM, **settings), NORMED, data, backend)
    assert_same(tree.pick(run.server, NORMED.names), avg.server)


def test_one_full_step_of_everybody_is_gradient_descent(backend):
    data = bowls(**UNEVEN)
    method = Scaffold(steps=1, batch_size=None, optimizer=Sgd(lr=0.1))
    w = 2.0
    run = finish(method, BOWL, data, backend, rounds=4, init={"w": w})
    for _ in range(4):
        w -= 0.1 * sum(k * (w - a) for k, a, _ in UNEVEN.values()) / 3
    assert float(run.server["w"]) == pytest.approx(w, abs=1e-5)


# ---- Control variates --------------------------------------------------------------------------


@pytest.mark.parametrize("cohort", [1.0, 2])
@pytest.mark.parametrize("option", ["I", "II"])
def test_the_servers_control_is_the_mean_of_all_clients_controls(option, cohort, backend):
    """Also when few take part: c moves by m / N, where N counts everybody registered."""
    method = Scaffold(option=option, epochs=2, batch_size=4)
    run = finish(method, NORMED, classes(), backend, rounds=3, cohort=cohort)
    assert_close(tree.slot("control", run.server), mean_control(run), 1e-5)
    assert any(leaf.any() for leaf in tree.slot("control", run.server).values())


def test_controls_start_at_zero():
    run = finish(Scaffold(), NORMED, classes(), rounds=0)
    for state in (run.server, run.clients["c0"]):
        assert not any(leaf.any() for leaf in tree.slot("control", state).values())


def test_a_client_keeps_its_control_and_uses_it_in_the_next_round(backend):
    """FL-bench never stores c_i back, so that it is 0 for ever: FedAvg with extra traffic."""
    data = bowls(a=(1.0, 4.0), b=(3.0, -2.0))
    method = Scaffold(steps=2, batch_size=None, optimizer=Sgd(lr=0.1))
    run = finish(method, BOWL, data, backend, rounds=2, init={"w": 1.0})
    w, c, own = 1.0, 0.0, {"a": 0.0, "b": 0.0}
    for _ in range(2):
        ends, new = [], {}
        for client, (curvature, optimum) in {"a": (1.0, 4.0), "b": (3.0, -2.0)}.items():
            y = w
            for _ in range(2):
                y -= 0.1 * (curvature * (y - optimum) - own[client] + c)
            ends.append(y)
            new[client] = own[client] - c + (w - y) / 0.2
        c, w = c + sum(new[k] - own[k] for k in own) / 2, sum(ends) / 2
        own = new
    assert float(run.server["w"]) == pytest.approx(w, abs=1e-5)
    assert float(run.server["control/w"]) == pytest.approx(c, abs=1e-5)
    for client, value in own.items():
        assert float(run.clients[client]["control/w"]) == pytest.approx(value, abs=1e-5)


def test_it_ends_at_the_common_optimum_where_fedavg_drifts_off(backend):
    settings = {"steps": 5, "batch_size": None, "optimizer": Sgd(lr=0.1)}
    data = bowls(**UNEVEN)
    run = finish(Scaffold(**settings), BOWL, data, backend, rounds=15)
    assert float(run.server["w"]) == pytest.approx(OPTIMUM, abs=1e-3)
    drifted = finish(FedAvg(reduce=UNIFORM, **settings), BOWL, data, backend, rounds=15)
    assert abs(float(drifted.server["w"]) - OPTIMUM) > 0.5


def test_a_client_outside_the_cohort_keeps_its_control():
    run = finish(Scaffold(), NORMED, classes(), rounds=1)
    before = dict(run.clients)
    run.cohort = 1
    (present,) = run.advance().cohort
    for client in before.keys() - {present}:
        assert_same(before[client], run.clients[client])
    assert differ(before[present], run.clients[present])


# ---- Steps -------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", [Exponential(factor=0.5), motet._core.schedules.Constant()])
def test_on_a_constant_slope_the_control_is_that_slope(schedule, backend):
    """Whatever the number of steps and the round's learning rate: their sizes add up."""
    data = ramps(a=(2.0, 1), b=(-1.0, 7), c=(0.5, 4))
    method = Scaffold(epochs=2, batch_size=3, optimizer=Sgd(lr=0.1), schedule=schedule)
    run = finish(method, RAMP, data, backend, rounds=3)
    for client, slope in {"a": 2.0, "b": -1.0, "c": 0.5}.items():
        assert float(run.clients[client]["control/w"]) == pytest.approx(slope, abs=1e-5)


def test_an_epoch_is_a_pass_over_all_batches(backend):
    """FL-bench's SCAFFOLD takes one batch per epoch while its FedAvg takes all of them."""
    data, settings = classes(), {"epochs": 2, "batch_size": 3}
    run = finish(Scaffold(**settings), NORMED, data, backend, rounds=0)
    avg = finish(FedAvg(**settings), NORMED, data, backend, rounds=0)
    assert run.advance().gradients == avg.advance().gradients == 2 * (7 + 5 + 9 + 1)


def test_steps_of_size_zero_teach_nothing(backend):
    """A warm-up starts at a learning rate of 0: dividing by it would make c_i infinite."""
    method = Scaffold(steps=2, schedule=Linear(warmup=0.5))
    run = finish(method, BOWL, bowls(**UNEVEN), backend, rounds=1, init={"w": 1.0})
    assert float(run.server["w"]) == 1.0
    assert float(run.server["control/w"]) == 0.0
    assert [float(run.clients[client]["control/w"]) for client in UNEVEN] == [0.0, 0.0, 0.0]


@dataclass(frozen=True)
class Pausing:
    """A learning rate that is 0 in some rounds."""

    pauses: frozenset[int]

    def __call__(self, number, total):
        return 0.0 if number in self.pauses else 1.0


@given(
    own=st.floats(-5, 5, width=32),
    control=st.floats(-5, 5, width=32),
    start=st.floats(-5, 5, width=32),
    examples=st.integers(1, 7),
    rate=st.sampled_from([0.0, 1.0]),
    option=st.sampled_from(["I", "II"]),
)
@settings(max_examples=30, deadline=None)
def test_a_client_that_takes_no_step_keeps_its_control(own, control, start, examples, rate, option):
    """Whatever c_i and c are: in `(w - y) / steps` nothing was learnt about c_i."""
    method = Scaffold(option=option, batch_size=3)
    course = finish(method, BOWL, bowls(a=(2.0, 1.0, examples)), rounds=0)
    data = course.setting.work("a", 0)
    if rate:  # no step because there is no example, not because of the rate
        data = {k: b._replace(weight=torch.zeros_like(b.weight)) for k, b in data.items()}
    data = {k: b._replace(rate=torch.as_tensor(rate, dtype=b.rate.dtype)) for k, b in data.items()}
    down = {"w": torch.tensor(start), "control/w": torch.tensor(control)}
    client = {"control/w": torch.tensor(own)}
    up, kept = method.client_update(down, client, data, BOWL)
    if option == "I" and not rate:  # a step of size 0, but the data were seen
        assert float(kept["control/w"]) == pytest.approx(2.0 * (start - 1.0), abs=1e-4)
    else:
        assert float(kept["control/w"]) == pytest.approx(own, abs=0)
        assert float(up["change/w"]) == 0.0
    assert float(up["w"]) == pytest.approx(start, abs=0)


@pytest.mark.parametrize("clients", [("a", "b", "c"), ("a",)])
def test_rounds_of_size_zero_leave_all_controls_as_they_are(clients, backend):
    data = bowls(**{client: UNEVEN[client] for client in clients})
    method = Scaffold(steps=2, optimizer=Sgd(lr=0.1), schedule=Pausing(frozenset({1, 2})))
    course = finish(method, BOWL, data, backend, rounds=0, init={"w": 2.0})
    course.advance()
    moved = tree.clone((course.server, dict(course.clients)))
    assert all(float(course.clients[client]["control/w"]) for client in clients)
    for _ in range(2):
        course.advance()
        assert_same(moved, (course.server, dict(course.clients)))
    course.advance()
    assert differ(moved[0], course.server)


def test_option_i_takes_the_gradient_at_the_received_model(backend):
    data = arrays({"a": 5, "b": 8})
    task = motet.Task(lambda: torch.nn.Linear(4, 3))
    method = Scaffold(option="I", epochs=2, batch_size=2)
    run = finish(method, task, data, backend, rounds=1, init={"bias": [0.1, 0.2, 0.3]})
    start = run.setting.initial
    for client in ("a", "b"):
        x, y = data.examples(client, "train")
        params = {k: v.clone().requires_grad_() for k, v in start.items()}
        outputs = torch.nn.functional.linear(x, params["weight"], params["bias"])
        torch.nn.functional.cross_entropy(outputs, y).backward()
        assert_close(own_control(run, client), {k: p.grad for k, p in params.items()}, 1e-5)


def test_the_option_changes_the_second_round(backend):
    data, settings = classes(), {"epochs": 2, "batch_size": 4}
    first, second = (
        finish(Scaffold(option=option, **settings), NORMED, data, backend, rounds=2)
        for option in ("I", "II")
    )
    assert differ(first.server, second.server)


def test_the_default_is_not_fedavg(backend):
    run = finish(Scaffold(), NORMED, classes(), backend, rounds=2)
    avg = finish(FedAvg(reduce=UNIFORM), NORMED, classes(), backend, rounds=2)
    assert differ(tree.pick(run.server, NORMED.names), avg.server)


# ---- The server, and what travels --------------------------------------------------------------


def test_clients_count_equally_whatever_their_size(backend):
    data = ramps(a=(1.0, 1), b=(4.0, 9))
    run = finish(Scaffold(steps=1, batch_size=None, optimizer=Sgd(lr=1.0)), RAMP, data, backend)
    assert float(run.server["w"]) == pytest.approx(-2.5, abs=1e-6)
    assert float(run.server["control/w"]) == pytest.approx(2.5, abs=1e-6)


def test_the_servers_step_size_scales_the_mean_change(backend):
    data = ramps(a=(1.0, 1), b=(4.0, 9))
    plain = {"steps": 1, "batch_size": None, "optimizer": Sgd(lr=1.0)}
    run = finish(Scaffold(server_optimizer=Sgd(lr=0.5), **plain), RAMP, data, backend)
    assert float(run.server["w"]) == pytest.approx(-1.25, abs=1e-6)
    assert float(run.server["control/w"]) == pytest.approx(2.5, abs=1e-6)


def test_running_statistics_have_no_control_and_are_averaged(backend):
    run = finish(Scaffold(batch_size=None), NORMED, classes(), backend)
    avg = finish(FedAvg(reduce=UNIFORM, batch_size=None), NORMED, classes(), backend)
    assert set(tree.slot("control", run.server)) == NORMED.parameters
    assert_same(tree.pick(run.server, NORMED.buffers), tree.pick(avg.server, NORMED.buffers))


def test_two_models_go_down_and_two_go_up():
    task = motet.Task(lambda: torch.nn.Linear(4, 3))
    size = 4 * (4 * 3 + 3)
    done = finish(Scaffold(), task, arrays({"a": 5, "b": 8}), rounds=0).advance()
    assert (done.bytes_down, done.bytes_up) == (2 * 2 * size, 2 * 2 * size)


def test_the_predictor_is_the_model_alone():
    run = finish(Scaffold(), NORMED, classes(), rounds=1)
    for point in ("after_broadcast", "after_local", "after_adapt"):
        assert set(run.personal("c0", point=point)) == set(NORMED.names)


@pytest.mark.parametrize(
    "optimizer", [Adam(), Sgd(lr=0.1, momentum=0.9), Sgd(lr=0.1, clip=1.0)], ids=str
)
def test_steps_that_are_not_plain_are_refused(optimizer):
    with pytest.raises(CapabilityError, match="needs plain steps: Sgd without momentum and clip"):
        Scaffold(optimizer=optimizer)


def test_an_unknown_option_is_refused_and_unequal_weights_are_an_alarm():
    with pytest.raises(RequestError, match='option= is "I" or "II"; got 1'):
        Scaffold(option=1)
    data = bowls(**UNEVEN)
    (warning,) = finish(Scaffold(reduce=Mean()), BOWL, data, rounds=0).warnings
    assert "clients count equally" in warning
    assert not finish(Scaffold(), BOWL, data, rounds=0).warnings
