"""FedAvgM, FedAdam, FedYogi, FedAdagrad against arithmetic, and the server optimizer as a part."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from arithmetic import BACKENDS, NORMED, RAMP, classes, differ, finish, ramps
from toys import assert_close, assert_same

import motet
from motet import Adam, FedAvg, FedPer, Mean, Sgd
from motet._core import tree
from motet.methods._fedadagrad import FedAdagrad
from motet.methods._fedadam import FedAdam
from motet.methods._fedalt import FedAlt
from motet.methods._fedavgm import FedAvgM
from motet.methods._feddyn import FedDyn
from motet.methods._fedprox import FedProx
from motet.methods._fedyogi import FedYogi
from motet.methods._moon import Moon
from motet.methods._scaffold import Scaffold
from motet.optim import Adagrad, Yogi

SERVERS = (FedAvgM, FedAdam, FedYogi, FedAdagrad)
OPTIMIZERS = (Sgd(lr=0.7, momentum=0.9), Adam(lr=0.1), Yogi(lr=0.1), Adagrad(lr=0.1, beta=0.5))
CHANGE = -0.6  # of every round on this slope: the mean of what 1 and 3 examples see
SLOPES = {"a": (3.0, 1), "b": (1.0, 3)}
ONE_STEP = {"steps": 1, "batch_size": None, "optimizer": Sgd(lr=0.4)}


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


def path(method, rounds, backend):
    """Return the server's weight after each round, from 1, where every round's change is equal."""
    run = finish(method, RAMP, ramps(**SLOPES), backend, rounds=0, init={"w": 1.0})
    return [float(run.advance().server["w"]) for _ in range(rounds)]


# ---- Closed forms ------------------------------------------------------------------------------


def test_the_worlds_change_is_what_the_tests_below_assume(backend):
    assert path(FedAvg(**ONE_STEP), 2, backend) == pytest.approx([0.4, -0.2], abs=1e-6)


@pytest.mark.parametrize(("beta", "lr"), [(0.9, 1.0), (0.5, 0.3)])
def test_fedavgm_goes_d_then_one_plus_beta_d(beta, lr, backend):
    method = FedAvgM(server_optimizer=Sgd(lr=lr, momentum=beta), **ONE_STEP)
    first = 1.0 + lr * CHANGE
    second = first + lr * (1 + beta) * CHANGE
    assert path(method, 2, backend) == pytest.approx([first, second], abs=1e-6)


def by_hand(second_moment, *, lr, tau, s0, b1=0.9, rounds=3):
    """Follow Reddi et al.'s algorithm 2 for one weight."""
    w, a, s, ways = 1.0, 0.0, s0, []
    for _ in range(rounds):
        a = b1 * a + (1 - b1) * CHANGE
        s = second_moment(s, CHANGE**2)
        w += lr * a / (math.sqrt(s) + tau)
        ways.append(w)
    return ways


def test_fedadam_is_the_papers_without_bias_correction(backend):
    expected = by_hand(lambda s, d2: 0.99 * s + 0.01 * d2, lr=0.01, tau=1e-3, s0=1e-6)
    assert path(FedAdam(**ONE_STEP), 3, backend) == pytest.approx(expected, abs=1e-6)


def test_fedyogi_is_the_papers(backend):
    expected = by_hand(
        lambda s, d2: s - 0.01 * d2 * math.copysign(1, s - d2), lr=0.01, tau=1e-3, s0=1e-6
    )
    assert path(FedYogi(**ONE_STEP), 3, backend) == pytest.approx(expected, abs=1e-6)


def test_fedyogis_second_moment_comes_down_slowly():
    """s above d^2 falls by (1 - b2) d^2, whatever s is: that is the difference to Adam."""
    start = Yogi(lr=0.01, betas=(0.9, 0.99), eps=1e-3, s0=4.0)
    run = finish(FedYogi(server_optimizer=start, **ONE_STEP), RAMP, ramps(**SLOPES))
    assert float(run.server["moments/second/w"]) == pytest.approx(4.0 - 0.01 * 0.36, abs=1e-6)


def test_fedadagrad_is_the_papers(backend):
    expected = by_hand(lambda s, d2: s + d2, lr=0.1, tau=1e-3, s0=1e-6, b1=0.0)
    assert path(FedAdagrad(**ONE_STEP), 3, backend) == pytest.approx(expected, abs=1e-6)


def test_with_bias_correction_fedadam_is_torchs_adam_on_the_mean_change(backend):
    """What Flower and TFF call FedAdam."""
    method = FedAdam(server_optimizer=Adam(lr=0.1, betas=(0.9, 0.99), eps=1e-3), **ONE_STEP)
    w = torch.tensor(1.0, requires_grad=True)
    theirs, expected = torch.optim.Adam([w], lr=0.1, betas=(0.9, 0.99), eps=1e-3), []
    for _ in range(3):
        w.grad = torch.tensor(-CHANGE)
        theirs.step()
        expected.append(float(w.detach()))
    assert path(method, 3, backend) == pytest.approx(expected, abs=1e-6)


def test_adagrad_is_torchs_adagrad():
    start = {"w": torch.tensor([1.0, -2.0]), "b": torch.tensor([[0.3]])}
    ours, moments = start, Adagrad(lr=0.1, s0=0.2).init(start)
    theirs = {k: v.clone().requires_grad_() for k, v in start.items()}
    optimizer = torch.optim.Adagrad(theirs.values(), lr=0.1, initial_accumulator_value=0.2)
    for _ in range(4):
        grads = {k: 2 * v + v.sin() for k, v in ours.items()}
        for p in theirs.values():
            p.grad = 2 * p.detach() + p.detach().sin()
        ours, moments = Adagrad(lr=0.1, s0=0.2).step(grads, moments, ours, 1.0)
        optimizer.step()
    assert_close(ours, {k: p.detach() for k, p in theirs.items()}, 1e-6)


# ---- Reductions --------------------------------------------------------------------------------


def test_yogi_is_adam_on_the_first_step_from_zero(backend):
    """To the last bit, because s = 0 - (1 - b2) d^2 sign(-d^2)."""
    settings = {"lr": 0.1, "eps": 1e-3, "s0": 0.0, "bias_correction": False}
    data = classes()
    yogi = finish(FedYogi(server_optimizer=Yogi(**settings)), NORMED, data, backend)
    adam = finish(
        FedAdam(server_optimizer=Adam(betas=(0.9, 0.999), **settings)), NORMED, data, backend
    )
    assert_same(yogi.server, adam.server)


@pytest.mark.parametrize("make", SERVERS, ids=lambda make: make.name)
def test_plain_steps_of_size_one_are_fedavg(make, backend):
    """Up to rounding: w - (w - mean) is the mean but for the last digits."""
    run = finish(make(server_optimizer=Sgd(lr=1.0)), NORMED, classes(), backend, rounds=2)
    assert_close(run.server, finish(FedAvg(), NORMED, classes(), backend, rounds=2).server, 2e-7)


def test_without_averages_and_tau_fedadam_takes_steps_of_equal_size(backend):
    sign = Adam(lr=0.25, betas=(0.0, 0.0), eps=0.0, bias_correction=False)
    assert path(FedAdam(server_optimizer=sign, **ONE_STEP), 2, backend) == pytest.approx(
        [0.75, 0.5], abs=1e-6
    )


@pytest.mark.parametrize("make", SERVERS, ids=lambda make: make.name)
def test_the_default_is_not_fedavg(make, backend):
    """Flower's FedAvgM has momentum 0 by default, which is FedAvg under another name."""
    run = finish(make(), NORMED, classes(), backend, rounds=2)
    avg = finish(FedAvg(), NORMED, classes(), backend, rounds=2)
    gap = max(float((run.server[k] - avg.server[k]).abs().max()) for k in NORMED.parameters)
    assert gap > 1e-4


@pytest.mark.parametrize(
    ("make", "knob"),
    [
        (FedAvgM, {"momentum": 0.5}),
        (FedAvgM, {"nesterov": True}),
        (FedAvgM, {"lr": 0.5}),
        (FedAdam, {"betas": (0.5, 0.99)}),
        (FedAdam, {"betas": (0.9, 0.5)}),
        (FedAdam, {"eps": 1e-1}),
        (FedAdam, {"s0": 1.0}),
        (FedAdam, {"bias_correction": True}),
        (FedYogi, {"betas": (0.9, 0.5)}),
        (FedYogi, {"s0": 1.0}),
        (FedAdagrad, {"beta": 0.9}),
        (FedAdagrad, {"s0": 1.0}),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else value.name,
)
def test_every_knob_changes_the_path(make, knob):
    turned = replace(make().server_optimizer, **knob)
    plain = path(make(**ONE_STEP), 3, "serial")
    other = path(make(server_optimizer=turned, **ONE_STEP), 3, "serial")
    assert plain != pytest.approx(other, abs=1e-6)


# ---- A part of every averaging method ----------------------------------------------------------


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda o: type(o).__name__)
@pytest.mark.parametrize("make", [FedAvg, FedPer, FedAlt, FedProx, Scaffold, FedDyn, Moon])
def test_any_method_that_averages_takes_any_server_optimizer(make, optimizer):
    """The step is on what the method itself would have moved to, and its own state is its own."""
    data = classes()
    plain = finish(make(), NORMED, data, rounds=1)
    run = finish(make(server_optimizer=optimizer), NORMED, data, rounds=1)
    start = finish(make(), NORMED, data, rounds=0).server
    moving = [k for k in start if k in NORMED.parameters]
    old, mean = tree.pick(start, moving), tree.pick(plain.server, moving)
    stepped, _ = optimizer.step(tree.subtract(old, mean), optimizer.init(old), old, 1.0)
    assert_close(tree.pick(run.server, moving), stepped, 1e-6)
    rest = [k for k in plain.server if k not in moving]
    assert_same(tree.pick(run.server, rest), tree.pick(plain.server, rest))
    for client in run.clients:
        assert_same(run.clients[client], plain.clients[client])


def test_running_statistics_and_counters_never_pass_through_the_optimizer(backend):
    """Aggregated buffers fed to Adam drift away from anything that was ever measured."""
    run = finish(FedAdam(), NORMED, classes(), backend, rounds=1)
    avg = finish(FedAvg(), NORMED, classes(), backend, rounds=1)
    assert_same(tree.pick(run.server, NORMED.buffers), tree.pick(avg.server, NORMED.buffers))
    assert run.server["body.1.num_batches_tracked"].dtype == torch.int64
    moments = {k.rpartition("/")[2] for k in run.server if k.startswith("moments/second/")}
    assert moments == NORMED.parameters


@pytest.mark.parametrize("make", SERVERS, ids=lambda make: make.name)
def test_moments_never_travel(make):
    run, avg = (finish(method, NORMED, classes(), rounds=0) for method in (make(), FedAvg()))
    first, second = run.advance(), avg.advance()
    assert any(name.startswith("moments/") for name in run.server)
    assert (first.bytes_down, first.bytes_up) == (second.bytes_down, second.bytes_up)
    assert set(run.personal("c0")) == set(NORMED.names)


def test_a_frozen_parameter_takes_no_step_at_the_server():
    class Frozen(torch.nn.Linear):
        def __init__(self):
            super().__init__(4, 3)
            self.bias.requires_grad_(False)

    task = motet.Task(Frozen)
    method = FedAvg(server_optimizer=Sgd(lr=1.0, momentum=0.9, weight_decay=0.5))
    run = finish(method, task, classes(), rounds=2, init={"bias": [1.0, 2.0, 3.0]})
    assert not any("bias" in name for name in run.server)
    assert run.setting.task.frozen["bias"].tolist() == [1.0, 2.0, 3.0]


def test_moments_survive_from_round_to_round_and_clients_do_not_enter_by_their_weights():
    """The mean is the method's own: uniform weights give another change, hence another step."""
    uniform = FedAdam(reduce=Mean(weights="uniform"), **ONE_STEP)
    run = finish(uniform, RAMP, ramps(**SLOPES), rounds=2)
    mean = -0.4 * 2.0  # of the slopes 3 and 1
    expected = (1 - 0.9**2) * mean  # after two equal changes
    assert float(run.server["moments/first/w"]) == pytest.approx(-expected, abs=1e-6)


# ---- Alarms ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "sentence"),
    [
        (FedAvgM(server_optimizer=Sgd(lr=1.0)), "without momentum is fedavg"),
        (FedAdam(server_optimizer=None), "server_optimizer=None is fedavg"),
        (FedYogi(server_optimizer=Adam()), "steps with Yogi, but its server_optimizer is Adam"),
        (FedAdam(server_optimizer=Yogi()), "steps with Adam, but its server_optimizer is Yogi"),
        (FedAdagrad(server_optimizer=Adagrad(lr=0.0)), "never moves"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_a_server_that_makes_it_another_method_is_an_alarm(method, sentence):
    (warning,) = finish(method, NORMED, classes(), rounds=0).warnings
    assert sentence in warning


@pytest.mark.parametrize("make", SERVERS, ids=lambda make: make.name)
def test_the_defaults_are_silent(make):
    assert not finish(make(), NORMED, classes(), rounds=0).warnings
    assert not differ(
        finish(make(), NORMED, classes()).server, finish(make(), NORMED, classes()).server
    )
