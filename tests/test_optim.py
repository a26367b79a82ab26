"""Optimizers against torch's own, step by step."""

from __future__ import annotations

import math

import pytest
import torch
from toys import assert_close

import motet
from motet._core.schedules import Constant, Cosine, Exponential, Linear, MultiStep
from motet._training.per_group import InUnitInterval
from motet.errors import CapabilityError, RequestError
from motet.optim import LEAST_EPS, Adagrad, ExampleOptimizer, Yogi, _normal
from motet.privacy import Private

START = {"w": torch.tensor([[1.0, -2.0], [0.5, 3.0]]), "b": torch.tensor([0.3, -0.1])}


def gradients(params):
    """The gradient of a bent bowl, different at every point."""
    return {k: 2 * p + p.sin() * 3 for k, p in params.items()}


def ours(optimizer, start, steps, rate=1.0):
    params, moments = start, optimizer.init(start)
    for _ in range(steps):
        params, moments = optimizer.step(gradients(params), moments, params, rate)
    return params


def theirs(make, start, steps, clip=None):
    params = {k: p.clone().requires_grad_() for k, p in start.items()}
    optimizer = make(list(params.values()))
    for _ in range(steps):
        for k, g in gradients({k: p.detach() for k, p in params.items()}).items():
            params[k].grad = g
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(params.values(), clip)
        optimizer.step()
    return {k: p.detach() for k, p in params.items()}


SGD = [
    {},
    {"momentum": 0.9},
    {"weight_decay": 0.1},
    {"momentum": 0.9, "nesterov": True},
    {"momentum": 0.5, "weight_decay": 0.01, "nesterov": True},
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("clip", [None, 0.7, 1e9])
@pytest.mark.parametrize("options", SGD)
def test_sgd_is_torchs_sgd(options, clip, dtype):
    start = {k: v.to(dtype) for k, v in START.items()}
    expected = theirs(lambda p: torch.optim.SGD(p, lr=0.05, **options), start, 7, clip)
    came = ours(motet.Sgd(lr=0.05, clip=clip, **options), start, 7)
    assert_close(came, expected, 1e-6 if dtype == torch.float32 else 1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("clip", [None, 0.7])
@pytest.mark.parametrize("options", [{}, {"betas": (0.5, 0.9)}, {"weight_decay": 0.1, "eps": 1e-3}])
def test_adam_is_torchs_adam(options, clip, dtype):
    start = {k: v.to(dtype) for k, v in START.items()}
    expected = theirs(lambda p: torch.optim.Adam(p, lr=0.05, **options), start, 7, clip)
    came = ours(motet.Adam(lr=0.05, clip=clip, **options), start, 7)
    assert_close(came, expected, 1e-6 if dtype == torch.float32 else 1e-12)


@pytest.mark.parametrize("s0", [0.0, 0.5])
def test_adagrad_is_torchs_adagrad(s0):
    expected = theirs(
        lambda p: torch.optim.Adagrad(p, lr=0.05, initial_accumulator_value=s0), START, 7
    )
    assert_close(ours(Adagrad(lr=0.05, s0=s0), START, 7), expected, 1e-6)


@pytest.mark.parametrize("optimizer", [motet.Sgd(lr=0.1, momentum=0.9), motet.Adam(lr=0.1)])
@pytest.mark.parametrize("rate", [0.5, torch.tensor(0.5, dtype=torch.float64)])
def test_a_rate_is_a_factor_on_the_learning_rate_and_keeps_the_type(optimizer, rate):
    start = {"matrix": torch.ones(2, 2), "number": torch.tensor(1.5)}
    slower = type(optimizer)(**{**vars(optimizer), "lr": optimizer.lr / 2})
    came = ours(optimizer, start, 3, rate)
    assert {leaf.dtype for leaf in came.values()} == {torch.float32}
    assert_close(came, ours(slower, start, 3), 1e-6)


def test_clipping_bounds_the_norm_over_all_tensors_together():
    optimizer = motet.Sgd(lr=1.0, clip=1.0)
    grads = {"a": torch.tensor([3.0]), "b": torch.tensor([4.0])}
    stepped, _ = optimizer.step(grads, {}, {k: torch.zeros(1) for k in grads}, 1.0)
    assert stepped["a"].item() == pytest.approx(-0.6, abs=1e-6)
    assert stepped["b"].item() == pytest.approx(-0.8, abs=1e-6)


@pytest.mark.parametrize("make", [motet.Sgd, motet.Adam])
@pytest.mark.parametrize("lr", [-0.1, math.nan])
def test_a_learning_rate_below_zero_is_refused(make, lr):
    with pytest.raises(RequestError, match=rf"{make.__name__}\(lr=\) must be 0 or more; got"):
        make(lr=lr)


def test_schedules_are_factors_by_round():
    assert [Constant()(t, 3) for t in range(3)] == [1, 1, 1]
    assert [Exponential(factor=0.5)(t, 3) for t in range(3)] == [1, 0.5, 0.25]
    linear = [Linear(warmup=0.5)(t, 4) for t in range(4)]
    assert linear == [0, 0.5, 1, 0.5]


@pytest.mark.parametrize("total", [1, 3, 8, 500])
@pytest.mark.parametrize(
    "schedule",
    [MultiStep(), MultiStep(milestones=(2, 300), factor=0.5), Cosine(), Cosine(warmup=0.3)],
)
def test_every_schedule_stays_between_0_and_1_and_never_rises_after_its_warmup(schedule, total):
    factors = [schedule(t, total) for t in range(total)]
    assert all(0 < factor <= 1 for factor in factors)
    peak = factors.index(max(factors))
    assert factors[: peak + 1] == sorted(factors[: peak + 1])
    assert factors[peak:] == sorted(factors[peak:], reverse=True)


def test_multi_step_drops_at_shares_of_the_rounds_or_at_rounds():
    shares = [MultiStep(milestones=(0.5, 0.75))(t, 8) for t in range(8)]
    assert shares == pytest.approx([1] * 4 + [0.1] * 2 + [0.01] * 2)
    counted = [MultiStep(milestones=(1, 3), factor=0.5)(t, 8) for t in range(4)]
    assert counted == [1, 0.5, 0.5, 0.25]


def test_cosine_is_half_a_wave_down_to_its_floor():
    assert [Cosine()(t, 4) for t in range(4)] == pytest.approx(
        [1, (1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2]
    )
    assert Cosine(floor=0.2)(10**6 - 1, 10**6) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: MultiStep(milestones=()), "above 0 in increasing order"),
        (lambda: MultiStep(milestones=(0.7, 0.5)), "above 0 in increasing order"),
        (lambda: MultiStep(milestones=(0.5, 20)), "shares of the rounds .* got both"),
        (lambda: MultiStep(milestones=(1.5, 3)), "whole numbers of rounds, or shares below 1"),
        (lambda: MultiStep(factor=1.5), r"factor=\) must be between 0 and 1; got 1.5"),
        (lambda: Cosine(warmup=-0.1), r"warmup=\) must be between 0 and 1; got -0.1"),
        (lambda: Cosine(floor=math.nan), r"floor=\) must be between 0 and 1; got nan"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(make, complaint):
    with pytest.raises(RequestError, match=complaint):
        make()


def test_an_optimizer_with_a_gradient_of_its_own_is_recognised_by_its_protocol():
    plain = (motet.Sgd(), motet.Adam(), Yogi(), Adagrad())
    assert not any(isinstance(optimizer, ExampleOptimizer) for optimizer in plain)
    assert isinstance(Private(), ExampleOptimizer)
    with pytest.raises(RequestError, match="private already"):
        Private(inner=Private())
    with pytest.raises(CapabilityError, match="cannot be a part"):
        InUnitInterval(Private())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("eps", [1e-3, 1e-8, LEAST_EPS])
def test_square_roots_of_the_least_normal_number_are_lost_beside_eps(eps, dtype):
    """Roots of zeros and subnormal numbers are slow, so Adam lifts them; no step may notice."""
    tiny = torch.finfo(dtype).tiny
    square = torch.tensor([0.0, tiny / 8, tiny, tiny * 9, 1e-12, 1.0], dtype=dtype)
    assert torch.equal(_normal(square, eps).sqrt() + eps, square.sqrt() + eps)
    assert _normal(square, eps).min() == tiny


def test_without_an_eps_second_moments_are_taken_as_they_are():
    square = torch.tensor([0.0, 1e-40])
    assert torch.equal(_normal(square, 0.0), square)
