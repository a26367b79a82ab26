"""Traced steps: the same arithmetic, nothing superfluous, and no number written too early."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from toys import assert_close

from motet._tracing.graphs import aten, simplified

CLIENTS, ROWS = 3, 5
NET = nn.Sequential(nn.Linear(7, 6), nn.ReLU(), nn.Linear(6, 4))
NAMES = [name for name, _ in NET.named_parameters()]


def values():
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(*shape, generator=generator)

    params = [draw(CLIENTS, *p.shape) for p in NET.parameters()]
    labels = torch.randint(0, 4, (CLIENTS, ROWS), generator=generator)
    return [*params, draw(CLIENTS, ROWS, 7), labels, torch.full((CLIENTS,), 0.1)]


def one(*values):
    """A step of plain SGD for one client."""
    *params, x, y, rate = values
    state = dict(zip(NAMES, params, strict=True))

    def loss(state):
        return nn.functional.cross_entropy(functional_call(NET, state, (x,)), y)

    slope = grad(loss)(state)
    return [state[name] - rate * slope[name] for name in NAMES]


def operations(step):
    graph = simplified(step, values(), 4).graph
    return [node.target for node in graph.nodes if node.op == "call_function"]


def test_a_traced_step_computes_what_the_step_computes():
    program = simplified(vmap(one), values(), donated=4)
    expected = vmap(one)(*values())
    assert_close(tuple(program(*values())), tuple(expected), 1e-6)


def test_a_program_may_be_replayed_on_its_own_results():
    program, plain = simplified(vmap(one), values(), donated=4), values()
    *state, x, y, rate = values()
    for _ in range(5):
        state = program(*state, x, y, rate)
        plain[:4] = vmap(one)(*plain)
    assert_close(tuple(state), tuple(plain[:4]), 1e-5)


def test_weights_are_updated_inside_the_product_that_makes_their_gradient():
    found = operations(vmap(one))
    assert found.count(aten.baddbmm_.default) == 2  # two layers
    assert aten.sub.Tensor not in found


def test_the_gradient_that_autograd_makes_of_a_stack_is_folded_too():
    def step(*values):
        """One gradient of the sum over clients."""
        *params, x, y, rate = values
        leaves = [p.detach().requires_grad_() for p in params]

        def loss(*own):
            *state, x, y = own
            outputs = functional_call(NET, dict(zip(NAMES, state, strict=True)), (x,))
            return nn.functional.cross_entropy(outputs, y)

        with torch.enable_grad():
            slopes = torch.autograd.grad(vmap(loss)(*leaves, x, y).sum(), leaves)
        rates = [rate.view(-1, *[1] * (p.ndim - 1)) for p in params]
        return [p - r * s for p, r, s in zip(params, rates, slopes, strict=True)]

    assert operations(step).count(aten.baddbmm_.default) == 2
    program = simplified(step, values(), donated=4)
    assert_close(tuple(program(*values())), tuple(vmap(one)(*values())), 1e-6)


def test_the_transpose_of_a_product_is_the_product_of_transposes():
    def step(weight, x, y):
        return [weight - 0.5 * (x @ y).mT, (x @ y).mT + weight.mT.contiguous().mT]

    start = [torch.randn(5, 3), torch.randn(3, 4), torch.randn(4, 5)]
    program = simplified(step, [value.clone() for value in start], donated=0)
    assert_close(tuple(program(*start)), tuple(step(*start)), 1e-6)


def test_nothing_that_changes_nothing_is_left():
    found = operations(vmap(one))
    assert aten.expand.default not in found or found.count(aten.expand.default) <= 1
    assert len(found) <= 55  # an untraced step makes twice as many calls


def test_arguments_that_were_not_given_away_are_not_written():
    given = values()
    before = [value.clone() for value in given]
    simplified(vmap(one), given, donated=4)(*[v.clone() for v in given[:4]], *given[4:])
    assert all(torch.equal(a, b) for a, b in zip(given, before, strict=True))


def test_a_parameter_that_others_still_need_is_not_overwritten_too_early():
    def tied(weight, other, x):
        """Each of the two is stepped along the other's old value: order would show."""
        return [weight - x * (other @ other.mT), other - x * (weight @ weight.mT)]

    start = [torch.eye(3) + 1, torch.ones(3, 3) * 2, torch.tensor(0.5)]
    expected = tied(*start)
    program = simplified(tied, [value.clone() for value in start], donated=2)
    assert_close(tuple(program(*[value.clone() for value in start])), tuple(expected))


def test_a_state_that_remembers_the_old_parameters_keeps_them():
    def remembering(weight, last, x):
        return [weight - x * weight.sin(), weight]

    start = [torch.ones(3), torch.zeros(3), torch.tensor(0.5)]
    program = simplified(remembering, [value.clone() for value in start], donated=2)
    new, old = program(*[value.clone() for value in start])
    assert torch.equal(old, torch.ones(3))
    assert not torch.equal(new, old)


def test_operations_that_write_are_replayed_in_order():
    def writing(weight, x):
        running = x + 0
        first = running * 1.0 + 0
        running.add_(1)
        second = running * 1.0 + 0
        return [weight - x * (second - first)]

    start = [torch.zeros(4), torch.tensor(2.0)]
    program = simplified(writing, [value.clone() for value in start], donated=1)
    assert_close(tuple(program(torch.zeros(4), start[1])), tuple(writing(*start)))


@pytest.mark.parametrize("number", [1, 1.0, True])
def test_equal_numbers_of_different_types_are_not_taken_for_one_another(number):
    def step(weight, x):
        return [weight + x.to(torch.int64) * 1 + x * 1.0 * number]

    start = [torch.zeros(2), torch.tensor([1.5, 2.5])]
    program = simplified(step, start, donated=0)
    assert_close(tuple(program(*start)), tuple(step(*start)))


def test_two_draws_of_random_numbers_are_not_taken_for_one_another():
    def step(value):
        return [value + torch.rand_like(value) - torch.rand_like(value)]

    start = torch.zeros(100)
    (moved,) = simplified(step, [start], 0)(start)
    assert moved.abs().min() > 0
