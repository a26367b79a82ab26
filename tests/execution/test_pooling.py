"""Pools before rectifiers, weights before data: the same numbers from less work."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from motet._tracing.graphs import FEW_ROWS, LARGE, aten, simplified


def images(*shape, seed=0):
    rng = torch.Generator().manual_seed(seed)
    # Few different numbers, so that windows have ties, above 0 and below.
    return torch.randint(-3, 4, shape, generator=rng).float()


def slope(function):
    """Make a step of a function of x: its values, and the gradient of their weighted sum."""

    def step(x):
        leaf = x.detach().requires_grad_()
        with torch.enable_grad():
            values = function(leaf)
            weights = torch.arange(1.0, values.numel() + 1).view(values.shape).sin()
            (back,) = torch.autograd.grad((values * weights).sum(), leaf)
        return [values.detach(), back]

    return step


def operations(step, x):
    return [(n.target, n.meta.get("layout")) for n in simplified(step, [x], 0).graph.nodes]


def has_large(step, x, target):
    return any(t is target and about.shape == x.shape for t, about in operations(step, x))


def pooled(window=2, stride=None, padding=0):
    return lambda x: nn.functional.max_pool2d(x.relu(), window, stride, padding)


@given(
    st.integers(1, 3),
    st.integers(1, 3),
    st.booleans(),
    st.integers(0, 99),
    st.booleans(),
)
def test_a_pool_before_its_rectifier_gives_the_same_numbers(window, stride, padded, seed, last):
    x = images(2, 3, 7, 6, seed=seed)
    x = x.contiguous(memory_format=torch.channels_last) if last else x
    step = slope(pooled(window, stride, window // 2 if padded else 0))
    for came, expected in zip(simplified(step, [x], 0)(x), step(x), strict=True):
        assert torch.equal(came, expected)


def test_a_number_that_is_none_goes_the_same_way():
    x, step = images(2, 3, 6, 6), slope(pooled())
    program = simplified(step, [x], 0)
    x[0, 0, 0, 0] = torch.nan
    for came, expected in zip(program(x), step(x), strict=True):
        assert torch.equal(came.nan_to_num(7.0), expected.nan_to_num(7.0))
        assert came.isnan().any() == expected.isnan().any()


def test_the_rectifier_sees_pooled_numbers_only_forwards_and_backwards():
    x, step = images(2, 3, 6, 6), slope(pooled())
    assert not has_large(step, x, aten.relu.default)
    assert not has_large(step, x, aten.threshold_backward.default)


def test_a_pool_without_a_way_back_is_swapped_too():
    x = images(2, 3, 6, 6)

    def step(x):
        return [pooled()(x)]

    assert not has_large(step, x, aten.relu.default)
    assert torch.equal(simplified(step, [x], 0)(x)[0], step(x)[0])


def seen_twice(x):
    y = x.relu()
    return nn.functional.max_pool2d(y, 2) + y[..., ::2, ::2]


def told_where(x):
    values, where = nn.functional.max_pool2d(x.relu(), 2, return_indices=True)
    return values * (where + 1)


def penalized_half_way(x):
    y = x.relu()
    return nn.functional.max_pool2d(y, 2) + y.square().mean()


def by_another_rectifier(x):
    return nn.functional.max_pool2d(nn.functional.leaky_relu(x), 2)


@pytest.mark.parametrize("function", [seen_twice, told_where, penalized_half_way])
def test_rectified_numbers_that_somebody_else_needs_are_made(function):
    x, step = images(2, 3, 6, 6), slope(function)
    assert has_large(step, x, aten.relu.default)
    for came, expected in zip(simplified(step, [x], 0)(x), step(x), strict=True):
        assert torch.equal(came, expected)


@pytest.mark.parametrize("function", [seen_twice, told_where, penalized_half_way])
def test_that_holds_without_a_way_back_too(function):
    x = images(2, 3, 6, 6)

    def step(x):
        return [function(x)]

    assert has_large(step, x, aten.relu.default)
    assert torch.equal(simplified(step, [x], 0)(x)[0], step(x)[0])


def backwards(x, *, threshold=0, other=False, half_way=False):
    """A way back through pool and rectifier that somebody has written by hand."""
    y = x.relu()
    values, where = aten.max_pool2d_with_indices(y, [2, 2], [2, 2])
    if other:
        where = aten.max_pool2d_with_indices(-x, [2, 2], [2, 2])[1]
    back = aten.max_pool2d_with_indices_backward(
        values + 1, y, [2, 2], [2, 2], [0, 0], [1, 1], False, where
    )
    cut = aten.threshold_backward(back, y, threshold)
    return [values, cut, back] if half_way else [values, cut]


@pytest.mark.parametrize(
    "odd", [{}, {"threshold": 1}, {"other": True}, {"half_way": True}], ids=str
)
def test_only_the_way_back_that_was_come_is_swapped(odd):
    x = images(2, 3, 6, 6)

    def step(x):
        return backwards(x, **odd)

    assert has_large(step, x, aten.relu.default) == bool(odd)
    for came, expected in zip(simplified(step, [x], 0)(x), step(x), strict=True):
        assert torch.equal(came, expected)


def test_numbers_that_change_before_the_pool_are_rectified_before():
    def step(x):
        y = 2 * x
        rectified = y.relu()
        y.add_(1)
        return [nn.functional.max_pool2d(rectified, 2), y]

    x = images(2, 3, 6, 6)
    for came, expected in zip(simplified(step, [x], 0)(x), step(x), strict=True):
        assert torch.equal(came, expected)


def test_other_rectifiers_stay_where_they_are():
    x, step = images(2, 3, 6, 6), slope(by_another_rectifier)
    assert has_large(step, x, aten.leaky_relu.default)
    assert torch.equal(simplified(step, [x], 0)(x)[1], step(x)[1])

    def forwards(x):
        return [by_another_rectifier(x)]

    assert torch.equal(simplified(forwards, [x], 0)(x)[0], forwards(x)[0])


INPUTS = 256
OUTPUTS = LARGE // INPUTS


def products(rows, outputs, bias, *, by_columns=False, **options):
    """Trace a layer, and say which shape comes first in its product."""
    rng = torch.Generator().manual_seed(0)
    shapes = ((rows, INPUTS), (outputs, INPUTS), bias)
    values = [torch.randn(*shape, generator=rng) for shape in shapes]
    if by_columns:
        values[1] = values[1].t().contiguous().t()

    def step(x, w, b):
        return [torch.addmm(b, x, w.t(), **options).view(-1)]  # which only works row by row

    program = simplified(step, values, 0)
    torch.testing.assert_close(program(*values), step(*values), rtol=1e-4, atol=1e-4)
    first = {aten.addmm.default: 1, aten.mm.default: 0}
    return [
        values[int(str(n.args[first[n.target]]).rpartition("_")[2])].shape
        if n.args[first[n.target]].op == "placeholder"
        else None
        for n in program.graph.nodes
        if n.target in first
    ]


def test_large_weights_come_first_in_the_product():
    assert products(FEW_ROWS, OUTPUTS, (OUTPUTS,)) == [(OUTPUTS, INPUTS)]


@pytest.mark.parametrize(
    ("rows", "outputs", "bias"),
    [
        (FEW_ROWS + 1, OUTPUTS, (OUTPUTS,)),
        (FEW_ROWS, OUTPUTS - 1, (OUTPUTS - 1,)),
        (FEW_ROWS, OUTPUTS, (FEW_ROWS, OUTPUTS)),
    ],
    ids=["many rows", "small weights", "a bias for each row"],
)
def test_other_products_stay_as_they_are(rows, outputs, bias):
    assert products(rows, outputs, bias) == [(rows, INPUTS)]


def test_a_product_that_is_scaled_and_weights_by_columns_stay_as_they_are():
    assert products(8, OUTPUTS, (OUTPUTS,), alpha=2.0) == [(8, INPUTS)]
    assert products(8, OUTPUTS, (OUTPUTS,), by_columns=True) == [(8, INPUTS)]


def test_weights_are_updated_inside_the_product_all_the_same():
    rng = torch.Generator().manual_seed(0)
    x, w = torch.randn(8, INPUTS, generator=rng), torch.randn(OUTPUTS, INPUTS, generator=rng)

    def step(w, x):
        return [w - 0.1 * ((x @ w.t()).tanh().t() @ x)]

    program = simplified(step, [w, x], 1)
    found = [node.target for node in program.graph.nodes]
    assert aten.addmm_.default in found
    torch.testing.assert_close(program(w.clone(), x), step(w, x), rtol=1e-4, atol=1e-4)
