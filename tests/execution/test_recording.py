"""Recording a step: everything that it does to its arguments, nothing else, or a refusal."""

from __future__ import annotations

import copy
import threading

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from toys import assert_close

from motet._tracing.recording import recorded
from motet.errors import StructureError

X = torch.linspace(-1, 1, 2 * 3 * 8 * 8).reshape(2, 3, 8, 8)


def calls(program):
    return [node for node in program.graph.nodes if node.op == "call_function"]


def test_operations_with_several_results_are_replayed_part_by_part():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.MaxPool2d(2)).train()
    state = {k: v.detach().clone() for k, v in net.named_parameters()}
    buffers = {k: v.clone() for k, v in net.named_buffers()}

    def step(x, *params):
        named = dict(zip(state, params, strict=True))

        def score(named):
            return functional_call(net, {**named, **copy.deepcopy(buffers)}, (x,)).square().mean()

        return list(grad(score)(named).values())

    with pytest.raises(StructureError, match="not among its arguments"):
        recorded(step, [X, *state.values()])  # running statistics are read, and were not given
    net[1].track_running_stats, net[1].running_mean, net[1].running_var = False, None, None
    buffers.clear()
    program = recorded(step, [X, *state.values()])
    other = [X.flip(0) + 0.1, *(p * 0.5 for p in state.values())]
    assert_close(tuple(program(*other)), tuple(step(*other)), 1e-6)


def test_numbers_written_as_tensors_become_constants():
    def step(x):
        return [x * torch.tensor(2.0) + torch.arange(4)]

    program = recorded(step, [torch.zeros(4)])
    assert torch.equal(program(torch.ones(4))[0], torch.tensor([2.0, 3.0, 4.0, 5.0]))


def test_a_step_that_decides_by_a_value_is_refused():
    with pytest.raises(StructureError, match="depends on the value"):
        recorded(lambda x: [x if x.sum() > 0 else -x], [torch.ones(3)])
    with pytest.raises(StructureError, match="depends on the value"):
        recorded(lambda x: [x[x > 0]], [torch.ones(3)])


def test_rows_taken_by_number_are_recorded():
    rows = torch.tensor([2, 0, 2])
    program = recorded(lambda x, rows: [x[rows]], [torch.arange(3.0), rows])
    assert torch.equal(program(torch.tensor([5.0, 6.0, 7.0]), rows)[0], torch.tensor([7.0, 5, 7]))


def test_a_tensor_from_outside_is_refused_not_baked_in():
    outside = torch.ones(3)
    with pytest.raises(StructureError, match=r"shape \(3,\) that is not among its arguments"):
        recorded(lambda x: [x + outside], [torch.ones(3)])
    with pytest.raises(StructureError, match="not among its arguments"):
        recorded(lambda x: [outside * 2], [torch.ones(3)])


def test_what_a_step_makes_on_its_first_use_is_not_recorded():
    own = threading.local()

    def step(x):
        if not hasattr(own, "network"):
            own.network = copy.deepcopy(nn.Linear(3, 3))
        return [x + 1]

    assert len(calls(recorded(step, [torch.ones(3)]))) == 1


def test_below_a_stack_and_a_gradient_plain_operations_are_seen():
    def one(weight, x):
        return grad(lambda w: (x @ w).square().sum())(weight)

    weight, x = torch.randn(5, 4), torch.randn(5, 6, 4)
    program = recorded(lambda *values: [vmap(one)(*values)], [weight, x])
    assert_close(program(weight + 1, x)[0], vmap(one)(weight + 1, x), 1e-6)
    names = {str(node.target) for node in calls(program)}
    assert any("bmm" in name for name in names)


def test_other_threads_run_networks_meanwhile_and_are_not_recorded():
    net, seen = nn.Linear(4, 4), []

    def elsewhere():
        seen.append(net(torch.ones(2, 4)))

    def step(x):
        other = threading.Thread(target=elsewhere)
        other.start()
        other.join()
        return [x.sin()]

    assert [str(n.target) for n in calls(recorded(step, [torch.ones(3)]))] == ["aten.sin.default"]
    assert torch.equal(seen[0], net(torch.ones(2, 4)))
