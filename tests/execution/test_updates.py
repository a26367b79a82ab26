"""Updates in a graph: few walks over the parameters, and the very sum that was written."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import assert_close

from motet._tracing.graphs import aten, simplified

SIZE = 4
NAMES = ("first", "second", "mixture", "anchor", "left", "right", "rate")
OWNED = 3  # first, second, mixture


def start():
    generator = torch.Generator().manual_seed(0)
    first, second, anchor, left, right = torch.randn(5, SIZE, SIZE, generator=generator)
    return [first, second, torch.tensor(0.3), anchor, left, right, torch.tensor(0.1)]


def operations(step, donated=1):
    graph = simplified(step, start(), donated).graph
    return [node.target for node in graph.nodes if node.op == "call_function"]


def assert_same(step, donated, *, tolerance=1e-5):
    """Replay a program on its own results, as training does."""
    program = simplified(step, [value.clone() for value in start()], donated=donated)
    values, expected = [value.clone() for value in start()], start()
    fixed = [value.clone() for value in values[donated:]]
    for _ in range(3):
        values[:donated] = program(*values)
        expected[:donated] = step(*expected)
    assert_close(tuple(values[:donated]), tuple(expected[:donated]), tolerance)
    assert all(torch.equal(a, b) for a, b in zip(values[donated:], fixed, strict=True))


def pulled(first, second, mixture, anchor, left, right, rate):
    return [first - rate * (left @ right + 0.5 * (first - anchor))]


def test_a_pull_and_a_product_are_added_in_two_walks():
    assert_same(pulled, 1)
    assert operations(pulled) == [
        aten.mul.Tensor,  # rate * strength
        aten.lerp_.Tensor,
        aten.mul.Tensor,  # rate * left
        aten.addmm_.default,
    ]


def test_a_pull_of_strength_zero_changes_no_bit():
    def weak(first, second, mixture, anchor, left, right, rate):
        return [first - rate * (left @ right + 0.0 * (first - anchor))]

    def free(first, second, mixture, anchor, left, right, rate):
        return [first - rate * (left @ right)]

    programs = [simplified(step, start(), donated=1) for step in (weak, free)]
    assert torch.equal(programs[0](*start())[0], programs[1](*start())[0])


def test_the_loss_itself_is_not_computed():
    def step(first, second, mixture, anchor, left, right, rate):
        leaf = first.detach().requires_grad_()
        with torch.enable_grad():
            loss = (leaf - anchor).square().sum().sqrt().exp().log() + (leaf * left).sum()
            (slope,) = torch.autograd.grad(loss, leaf)
        return [first - rate * slope]

    assert_same(step, 1)
    assert aten.log.default not in operations(step)


def test_a_step_inside_a_step_is_short_too():
    def step(first, second, mixture, anchor, left, right, rate):
        """Two inner steps from the parameters, which stay as they are until the end."""
        inner = first
        for x in (left, left.mT):
            inner = inner - 0.1 * (x @ right + 2.0 * (inner - first))
        return [first - rate * (first - inner)]

    assert_same(step, 1)
    found = operations(step)
    assert found.count(aten.addmm.default) + found.count(aten.addmm_.default) == 2
    assert aten.sub.Tensor not in found


def inner_steps(first, anchor, left, rate):
    """Three steps towards an anchor, all of them kept."""
    points = [first]
    for _ in range(3):
        here = points[-1]
        points.append(here - 0.1 * ((left @ here).tanh() @ here + 0.5 * (here - anchor)))
    return points


def test_steps_inside_a_step_use_one_memory():
    def step(first, second, mixture, anchor, left, right, rate):
        return [first + inner_steps(first, anchor, left, rate)[-1]]

    assert_same(step, 1)
    found = operations(step)
    assert found.count(aten.lerp.Scalar) == 1  # the first, away from the weights
    assert found.count(aten.lerp_.Scalar) == 2


def test_an_inner_point_that_is_needed_later_is_not_overwritten():
    def averaged(first, second, mixture, anchor, left, right, rate):
        _, one, two, three = inner_steps(first, anchor, left, rate)
        return [first + three, second + two.t(), mixture + one.sum() / 100]

    assert_same(averaged, 3)

    def returned(first, second, mixture, anchor, left, right, rate):
        _, one, two, _ = inner_steps(first, anchor, left, rate)
        return [two, one]

    assert_same(returned, 2)


def test_a_multiple_of_an_inner_point_is_taken_before_the_point_moves_on():
    def step(first, second, mixture, anchor, left, right, rate):
        one = first - 0.1 * (left @ right)
        half = 0.5 * one
        two = one - 0.1 * (one - anchor)
        return [first - 0.3 * half, second - 0.3 * two]

    assert_same(step, 2)


def test_a_step_of_nothing_leaves_a_value_where_it_is():
    def step(first, second, mixture, anchor, left, right, rate):
        same = anchor - 0.1 * (anchor - anchor)
        return [first + (same - 0.1 * (same - left))]

    assert_same(step, 1)


def test_momentum_is_kept_in_its_place():
    def step(first, second, mixture, anchor, left, right, rate):
        velocity = 0.9 * second + left @ right
        return [first - rate * velocity, velocity]

    assert_same(step, 2)
    found = operations(step, 2)
    assert found == [aten.addmm_.default, aten.addcmul_.default]


def test_a_running_mean_is_one_walk_over_memory():
    def step(first, second, mixture, anchor, left, right, rate):
        return [first, 0.9 * second + (1 - 0.9) * anchor]

    assert_same(step, 2)
    assert operations(step, 2) == [aten.lerp_.Scalar]


def test_a_sum_that_is_no_running_mean_is_not_taken_for_one():
    def step(first, second, mixture, anchor, left, right, rate):
        return [0.1 * first + 0.9 * anchor, 0.9 * second + 0.2 * anchor]

    assert_same(step, 2)
    assert aten.lerp_.Scalar not in operations(step, 2)


def test_a_square_that_nobody_else_needs_is_added_as_it_is_computed():
    def step(first, second, mixture, anchor, left, right, rate):
        return [first, second + 0.3 * anchor.square()]

    assert_same(step, 2)
    assert operations(step, 2) == [aten.addcmul_.default]


def test_the_square_of_a_value_that_is_being_changed_is_computed_first():
    def step(first, second, mixture, anchor, left, right, rate):
        return [first + 0.3 * first.t().square(), second + 0.3 * second.square() + 0.1 * anchor]

    assert_same(step, 2)


def test_weight_decay_reads_the_weights_before_the_gradient_is_added():
    def step(first, second, mixture, anchor, left, right, rate):
        return [first - rate * (left @ right + anchor + 0.5 * first)]

    assert_same(step, 1)
    assert aten.addmm_.default in operations(step)


def test_weight_decay_and_a_pull_do_not_see_one_another():
    def step(first, second, mixture, anchor, left, right, rate):
        return [first - rate * (5.0 * (first - anchor) + 5.0 * first)]

    assert_same(step, 1)


def test_a_factor_that_is_itself_updated_is_read_before():
    def step(first, second, mixture, anchor, left, right, rate):
        new = mixture - rate * (left * right).sum()
        return [
            first - mixture * (left @ right),
            second - rate * (mixture * (right @ left)),
            new,
        ]

    assert_same(step, 3)


def test_a_transposed_look_at_the_weights_sees_the_old_ones():
    def step(first, second, mixture, anchor, left, right, rate):
        return [first - rate * first.mT]

    assert_same(step, 1)


def test_two_results_that_are_one_are_not_overwritten_for_each_other():
    def step(first, second, mixture, anchor, left, right, rate):
        """From the second replay on, first and second are the same memory."""
        new = second - rate * (left @ right)
        return [new, new, mixture - 0.01 * first.sum()]

    assert_same(step, 3)


def test_a_gradient_that_two_updates_need_is_computed_once():
    def step(first, second, mixture, anchor, left, right, rate):
        slope = left @ right
        return [first - rate * slope, second - rate * slope]

    assert_same(step, 2)
    assert operations(step, 2) == [
        aten.mm.default,
        aten.mul_.Tensor,
        aten.add_.Tensor,
        aten.add_.Tensor,
    ]


def test_clients_without_a_batch_stay_as_they_are():
    active = torch.tensor([True, False, True])[:, None, None]

    def masked(weights, anchor, left, right, rate, mask):
        stepped = weights - rate * (left @ right + 0.5 * (weights - anchor))
        return [torch.where(mask, stepped, weights)]

    generator = torch.Generator().manual_seed(1)
    weights, anchor, left, right = torch.randn(4, 3, SIZE, SIZE, generator=generator)
    left[1] = float("nan")  # of nobody: it must not show
    rate = torch.full((3, 1, 1), 0.1)
    values = [weights, anchor, left, right, rate, active]
    program = simplified(masked, values, donated=1)
    stepped = program(weights.clone(), *values[1:])[0]
    assert torch.equal(stepped[1], weights[1])
    assert_close(stepped, masked(*values)[0], 1e-6)
    found = {node.target for node in simplified(masked, values, 1).graph.nodes}
    assert found >= {aten.lerp_.Tensor, aten.baddbmm_.default}
    assert aten.where.self not in found  # of whole tensors


def test_an_anchor_that_moves_too_is_read_before():
    def step(first, second, mixture, anchor, left, right, rate):
        to_first, to_itself = second - first, first - first.mT
        return [first - rate * to_itself, second - rate * to_first]

    assert_same(step, 2)


def test_clients_that_stay_do_not_delay_what_others_read():
    def step(first, second, mixture, anchor, left, right, rate):
        mask = rate > 0
        new_first, new_second = first - rate * left, second - first
        return [torch.where(mask, new_first, first), torch.where(mask, new_second, second)]

    assert_same(step, 2)


small = st.sampled_from(["rate", "mixture", 0.5, -2.0, 1.0, 0.0])
leaf = st.sampled_from(["first", "second", "anchor", "left", "right"])
sums = st.recursive(
    leaf,
    lambda inner: st.one_of(
        st.tuples(st.just("add"), inner, inner),
        st.tuples(st.just("sub"), inner, inner),
        st.tuples(st.just("scale"), inner, small),
        st.tuples(st.just("product"), leaf, leaf),
        st.tuples(st.just("transpose"), inner),
        st.tuples(st.just("negative"), inner),
    ),
    max_leaves=8,
)


def computed(expression, values):
    if not isinstance(expression, tuple):
        return values[expression] if isinstance(expression, str) else expression
    kind, *parts = expression
    a, *rest = (computed(part, values) for part in parts)
    if kind == "transpose":
        return a.mT
    if kind == "negative":
        return -a
    work = {"add": torch.add, "sub": torch.sub, "scale": torch.mul, "product": torch.matmul}
    return work[kind](a, *rest)


@settings(max_examples=300, deadline=None)
@given(st.tuples(sums, sums), st.tuples(small, small), st.booleans())
def test_any_sum_is_computed_as_it_is_written(gradients, rates, reverse):
    def step(*given):
        """All gradients first, then all updates, as training does."""
        values = dict(zip(NAMES, given, strict=True))
        slopes = [
            computed(gradient, values) * computed(rate, values)
            for gradient, rate in zip(gradients, rates, strict=True)
        ]
        slopes = [*slopes, values["first"].sum()]
        places = range(OWNED)[::-1] if reverse else range(OWNED)
        results = {place: given[place] - 0.05 * slopes[place] for place in places}
        return [results[place] for place in range(OWNED)]

    assert_same(step, OWNED, tolerance=1e-4)


VIEWS = {
    "slice": lambda w: w[1:],
    "every second row": lambda w: w[::2],
    "row": lambda w: w[0],
    "column": lambda w: w[:, 1],
    "chunk": lambda w: w.chunk(2)[1],
    "unbound row": lambda w: w.unbind(0)[1],
    "diagonal": lambda w: w.diagonal(),
    "windows": lambda w: w.unfold(0, 2, 1),
    "bits": lambda w: w.view(torch.int64).view(torch.float64),
    "any strides": lambda w: w.as_strided((2, 2), (1, 1), 3),
    "view of a view": lambda w: w.mT[None].squeeze()[2:].flatten(),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("then", [lambda s: s * 3, lambda s: s], ids=["read later", "returned"])
def test_a_part_of_the_old_weights_is_seen_as_it_was(view, then):
    def step(w, gradient):
        part = view(w)
        new = w - 0.1 * gradient
        return [new, then(part)]

    def inner(w, gradient):  # the first point is the step's own memory
        first = w - 0.1 * gradient
        part = view(first)
        return [first - 0.1 * gradient.sin(), then(part)]

    values = [torch.arange(16.0, dtype=torch.float64).view(4, 4), torch.ones(4, 4).double()]
    for written in (step, inner):
        expected = [result.clone() for result in written(*values)]
        program = simplified(written, values, donated=1)
        found = program(values[0].clone(), values[1])
        assert all(map(torch.equal, found, expected))
