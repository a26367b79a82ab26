"""Memory that is used again: fewer tensors, and not one bit of difference."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from motet._tracing.graphs import aten, simplified
from motet._tracing.nodes import writes

UNARY = (torch.sqrt, torch.neg, torch.square, torch.tanh, torch.t)
BINARY = (torch.add, torch.sub, torch.mul, torch.div)
ARGUMENTS = 3


def start():
    generator = torch.Generator().manual_seed(0)
    return list(torch.rand(ARGUMENTS, 4, 4, generator=generator) + 0.5)


def targets(step):
    graph = simplified(step, start(), donated=0).graph
    return [node.target for node in graph.nodes if node.op == "call_function"]


def assert_no_bit_changes(step):
    values, expected = start(), step(*start())
    program = simplified(step, start(), donated=0)
    for _ in range(2):  # and once more: nothing may be left behind
        came = program(*values)
        assert all(torch.equal(a, b) for a, b in zip(came, expected, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(values, start(), strict=True))


def test_a_chain_of_operations_makes_one_tensor():
    def step(a, b, c):
        return [(a.sqrt() / b + 1e-8) * c]

    assert_no_bit_changes(step)
    assert targets(step) == [
        aten.sqrt.default,
        aten.div_.Tensor,
        aten.add_.Tensor,
        aten.mul_.Tensor,
    ]


def test_an_argument_is_never_overwritten():
    def step(a, b, c):
        return [a * b, c + a]

    assert_no_bit_changes(step)
    assert targets(step) == [aten.mul.Tensor, aten.add.Tensor]


def test_what_is_read_again_later_stays_as_it_is():
    def step(a, b, c):
        root = a.sqrt()
        seen = root.t()
        scaled = root * b
        return [scaled, seen + c]

    assert_no_bit_changes(step)


def test_what_is_returned_stays_as_it_is():
    def step(a, b, c):
        root = a.sqrt()
        return [root, root * b]

    assert_no_bit_changes(step)


def test_no_operation_reads_what_it_overwrites_in_another_order():
    def step(a, b, c):
        root = a.sqrt()
        return [root - root.t(), root.t() * root]

    assert_no_bit_changes(step)


@given(st.data())
def test_no_program_changes_a_bit(data):
    length = data.draw(st.integers(2, 8))
    lines = []
    for number in range(ARGUMENTS, ARGUMENTS + length):
        place = st.integers(0, number - 1)
        op = data.draw(st.sampled_from((*UNARY, *BINARY)))
        lines.append((op, data.draw(place), data.draw(place)))
    returned = data.draw(st.lists(st.integers(0, ARGUMENTS + length - 1), min_size=1, max_size=3))

    def step(*arguments):
        values = list(arguments)
        for op, x, y in lines:
            values.append(op(values[x]) if op in UNARY else op(values[x], values[y]))
        return [values[place] + 0 for place in returned]

    values = start()
    expected = step(*start())
    program = simplified(step, start(), donated=0)
    came = program(*values)
    pairs = zip(came, expected, strict=True)
    assert all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in pairs)
    assert all(torch.equal(a, b) for a, b in zip(values, start(), strict=True))


def test_the_generator_reaches_operations_that_write():
    def step(a, b, c):
        return [(a + b) * c]

    program = simplified(step, start(), donated=0)
    assert any(writes(node) for node in program.graph.nodes if node.op == "call_function")
