"""Programs of torch's interpreter: what Python would replay, to the last bit, without its lock."""

from __future__ import annotations

import pytest
import torch
from torch import fx, nn
from torch.func import functional_call
from torch.nn import functional as F

import motet
from motet._core.gradient import grad
from motet._tracing.graphs import simplified
from motet._tracing.scripts import scripted

aten = torch.ops.aten
MODELS = {
    "mlp": ("mlp", (6,), {"hidden": [5]}),
    "convolutions": ("small-cnn", (1, 8, 8), {}),
    "attention": ("transformer", (6,), {"layers": 1, "width": 8, "heads": 2, "feedforward": 8}),
}
OPTIMIZERS = {
    "sgd": motet.Sgd(lr=0.1),
    "momentum": motet.Sgd(lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True),
    "adam": motet.Adam(lr=0.1, weight_decay=0.01),
}


def batch(shape, generator):
    if len(shape) == 1 and shape[0] == 6:
        return torch.randint(0, 4, (3, 6), generator=generator)
    return torch.randn(3, *shape, generator=generator)


def step_of(name, optimizer):
    """A step of one client, and tensors to run it with."""
    model, shape, options = MODELS[name]
    generator = torch.Generator().manual_seed(0)
    net = motet.models.build(model, shape=shape, classes=4, **options)
    params = {k: v.detach() for k, v in net.named_parameters()}
    buffers = {k: v for k, v in net.named_buffers() if v.is_floating_point()}
    moments = optimizer.init(params)
    x = batch(shape, generator).to(torch.float32 if model == "mlp" else None)
    flat, like = torch.utils._pytree.tree_flatten((params, moments))

    def step(*values):
        *state, x = values
        params, moments = torch.utils._pytree.tree_unflatten(state, like)

        def loss(params):
            return F.log_softmax(functional_call(net, params | buffers, (x,)), -1)[..., 0].mean()

        new = optimizer.step(grad(loss)(params), moments, params, torch.tensor(0.1))
        return torch.utils._pytree.tree_leaves(new)

    return step, [*flat, x]


def replayed(run, values, donated):
    *state, x = (value.clone() for value in values)
    assert len(state) == donated
    for _ in range(2):  # the second step reads what the first one has written
        state = list(run(*state, x))
    return state


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", MODELS)
def test_the_interpreter_computes_the_same_bits(name, optimizer):
    step, values = step_of(name, OPTIMIZERS[optimizer])
    donated = len(values) - 1
    program = simplified(step, values, donated, [torch.tensor(0.1)])
    run = scripted(program)
    assert run != program.forward
    pairs = zip(replayed(run, values, donated), replayed(program, values, donated), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def traced(function):
    graph = fx.Graph()
    node = graph.call_function(*function(graph.placeholder("x")))
    graph.output([node])
    return fx.GraphModule(nn.Module(), graph)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: (aten.mul.Tensor, (x, 0.1)),
        lambda x: (aten._to_copy.default, (1,), {"dtype": torch.float64}),
        lambda x: (aten.add.Tensor, (x, x), {"alpha": 2}),
        lambda x: (aten.sum.dim_IntList, (x, [])),
        lambda x: (
            aten.index.Tensor,
            (x, [None, x.graph.call_function(aten.argmax.default, (x, 1))]),
        ),
        lambda x: (aten.clone.default, (x,), {"memory_format": torch.contiguous_format}),
        lambda x: (aten.div.Tensor_mode, (x, 0.3), {"rounding_mode": "floor"}),
        lambda x: (aten.expand.default, (x, [2, 2, 2]), {"implicit": True}),
        lambda x: (aten.full.default, ([2], 1), {"dtype": torch.int64, "device": "cpu"}),
    ],
)
def test_arguments_of_every_kind_reach_the_operation(call):
    program = traced(call)
    run = scripted(program)
    for x in (torch.randn(2, 2), torch.randn(2, 2, dtype=torch.float64)):
        (got,), (expected,) = run(x), program(x)
        assert torch.equal(got, expected)
        assert got.dtype == expected.dtype


def test_what_the_interpreter_does_not_know_is_replayed_by_python():
    program = traced(lambda x: (torch.sort, (x,)))
    assert scripted(program) == program.forward


def test_torch_may_optimize_other_scripts_as_before():
    assert torch._C._get_graph_executor_optimize()
    run = scripted(traced(lambda x: (aten.relu.default, (x,))))
    run(torch.ones(1))
    with pytest.raises(RuntimeError):
        run(torch.ones(1), torch.ones(1))
    assert torch._C._get_graph_executor_optimize()
