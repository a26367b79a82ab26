"""Masks before a softmax, and stacks of heads: fewer walks over memory, the same numbers."""

from __future__ import annotations

import math

import pytest
import torch
from torch.func import grad, vmap

from motet._core.keys import Key
from motet._tracing.graphs import aten, simplified
from motet.models import build
from motet.task import Batch, Task

TIME, SIZE = 5, 4
SLOW = (aten.masked_fill.Scalar, aten.triu.default, aten.ones.default)


def mask(**options):
    return torch.ones(TIME, TIME, dtype=torch.bool, **options).triu(1)


def attention(x, marks):
    """One head whose queries, keys and values are the same."""
    scores = x @ x.transpose(-1, -2) / math.sqrt(SIZE)
    return scores.masked_fill(marks, -math.inf).softmax(-1) @ x


def step(x):
    return [grad(lambda x: attention(x, mask()).square().sum())(x)]


def values(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def targets(program):
    return [node.target for node in program.graph.nodes if node.op == "call_function"]


def test_a_causal_mask_is_made_once_and_added():
    x = values(3, TIME, SIZE)
    program = simplified(step, [x], donated=0)
    assert not set(SLOW) & set(targets(program))
    for seen in (x, x.flip(0)):  # and again: the mask is not used up
        torch.testing.assert_close(program(seen)[0], step(seen)[0])


def test_a_stack_of_clients_shares_one_mask():
    x = values(2, 3, TIME, SIZE)

    def stacked(x):
        return [vmap(lambda x: step(x)[0])(x)]

    program = simplified(stacked, [x], donated=0)
    assert aten.masked_fill.Scalar not in targets(program)
    torch.testing.assert_close(program(x)[0], stacked(x)[0])


def test_a_mask_that_comes_with_the_data_stays_a_mask():
    def step(x, marks):
        return [grad(lambda x: attention(x, marks).square().sum())(x)]

    x, marks = values(3, TIME, SIZE), mask()
    program = simplified(step, [x, marks], donated=0)
    assert targets(program).count(aten.masked_fill.Scalar) == 2
    other = marks.t().contiguous()
    torch.testing.assert_close(program(x, other)[0], step(x, other)[0])


@pytest.mark.parametrize("number", [0.0, 2.0, -1e4])
def test_other_numbers_than_minus_infinity_are_filled_in(number):
    def step(x):
        return [x.masked_fill(mask(), number).softmax(-1)]

    x = values(3, TIME, TIME)
    program = simplified(step, [x], donated=0)
    assert aten.masked_fill.Scalar in targets(program)
    assert torch.equal(program(x)[0], step(x)[0])


def test_scores_that_somebody_else_reads_are_filled_in():
    def step(x):
        scores = x.masked_fill(mask(), -math.inf)
        return [scores.softmax(-1), scores.amax(-1)]

    x = values(3, TIME, TIME)
    program = simplified(step, [x], donated=0)
    assert aten.masked_fill.Scalar in targets(program)
    assert all(map(torch.equal, program(x), step(x)))


def test_random_numbers_are_drawn_in_every_step():
    def step(x):
        return [x + torch.zeros(3).bernoulli(0.5)]

    program = simplified(step, [values(3)], donated=0)
    assert len({tuple(program(torch.zeros(3))[0].tolist()) for _ in range(40)}) > 1


@pytest.mark.parametrize("order", [(1, 3, 0, 2, 4), (0, 1, 2, 4, 3), (4, 0, 1, 2, 3)])
@pytest.mark.parametrize("axis", [0, 2, -1])
def test_a_permuted_stack_is_copied_once(order, axis):
    def step(a, b):
        return [torch.stack([a, b], axis).permute(order).contiguous()]

    parts = [values(2, 3, 4, 5), values(2, 3, 4, 5) + 1]
    program = simplified(step, parts, donated=0)
    assert aten.clone.default not in targets(program)
    (came,), (expected,) = program(*parts), step(*parts)
    assert torch.equal(came, expected)
    assert came.stride() == expected.stride()


def test_a_step_of_the_transformer_has_no_mask_to_fill():
    task = Task(lambda: build("transformer", shape=(TIME,), classes=7, layers=1, width=8, heads=2))
    state = task.init(Key(0))
    x = torch.arange(2 * TIME).view(2, TIME) % 7
    batch = Batch(x, x.flip(0), torch.ones(2), torch.tensor(0))
    names = sorted(state)

    def step(*leaves):
        def loss(state):
            return task.loss(state, batch).value

        slopes = grad(loss)(dict(zip(names, leaves[:-3], strict=True)))
        return [slopes[name] for name in names]

    leaves = [state[name] for name in names]
    program = simplified(step, [*leaves, *batch[:3]], donated=0, constants=[*batch])
    assert not set(SLOW) & set(targets(program))
    for came, expected in zip(program(*leaves, *batch[:3]), step(*leaves, *batch[:3]), strict=True):
        torch.testing.assert_close(came, expected)
