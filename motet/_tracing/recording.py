"""The recorder: every operation that a function of tensors calls, in order, as a `torch.fx` graph.

torch's own tracer, `make_fx`, does the same and more. But it patches `nn.Module` for every thread,
so no network can run in the meantime, and it imports symbolic shapes: 70 MB, more than a second.
Here shapes are fixed, and nothing outside of this thread is touched.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.weak import WeakTensorKeyDictionary

from motet._tracing.layouts import layout
from motet._tracing.op_counter import OperationObserver
from motet.errors import StructureError

# Operations with these tags depend on values, and a graph holds for other values as well.
NO_GRAPH_CAN_HOLD = frozenset({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape})


def recorded(
    step: Callable[..., Sequence[Tensor]],
    values: Sequence[Tensor],
    constants: Sequence[Tensor] = (),
) -> fx.GraphModule:
    """Run a step once and return its operations as a graph, with the layout of every result.

    Constants, which never change, become part of the graph, without a copy.

    Raises:
        StructureError: The step depends on the value of a tensor, or reads a tensor that is not one
            of its arguments and no constant.
    """
    # What is made on first use (a thread's own network, a cached table) must not become a part of
    # the graph, so the step runs once before it is recorded.
    step(*values)
    recorder = _Recorder(values, constants)
    with recorder:
        results = step(*values)
    recorder.graph.output([recorder.node_of(result) for result in results])
    others = [_other(value) for value in values]
    with _Repeat(recorder.called) as again:
        step(*others)
    again.check_ended()
    return fx.GraphModule(recorder.constants, recorder.graph)


class _Recorder(OperationObserver):
    """Adds a node for every operation.

    It sees operations below all transforms: on plain tensors, with `vmap` already replaced by
    batched operations and `grad` by the operations of the backward pass.
    """

    def __init__(self, values: Sequence[Tensor], constants: Sequence[Tensor] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.graph = fx.Graph()
        self.constants = torch.nn.Module()
        self.called: list[tuple[Any, ...]] = []
        # By identity, and weakly: a step's results need not all be in memory at once.
        self._nodes = WeakTensorKeyDictionary()
        self._known = WeakTensorKeyDictionary(dict.fromkeys(constants))
        for number, value in enumerate(values):
            self._name(self.graph.placeholder(f"value_{number}"), value)

    def observe(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record an operation while it runs."""
        if NO_GRAPH_CAN_HOLD.intersection(func.tags) and not _takes_rows(func, args):
            raise StructureError(f"{func} depends on the value of a tensor.")
        if func is torch.ops.aten.lift_fresh.default:  # a literal, such as torch.tensor(2.0)
            self._name_constant(args[0])
        self.called.append(_call(func, args, kwargs))
        inputs = tree_map(self._as_input, (args, kwargs))
        result = func(*args, **kwargs)
        self._name(self.graph.call_function(func, *inputs), result)
        return result

    def node_of(self, tensor: Tensor) -> fx.Node:
        """Return the node that made a tensor.

        A tensor without one was captured by the step. Its values may differ at the next replay, so
        it cannot be baked into the graph as a constant.
        """
        if tensor not in self._nodes:
            if tensor not in self._known:
                raise StructureError(
                    f"it reads a tensor of shape {tuple(tensor.shape)} that is not among its "
                    "arguments."
                )
            self._name_constant(tensor)
        node: fx.Node = self._nodes[tensor]
        return node

    def _as_input(self, value: Any) -> Any:
        return self.node_of(value) if isinstance(value, Tensor) else value

    def _name(self, node: fx.Node, result: Any) -> None:
        """Note which node a result belongs to, and its layout for the passes."""
        if isinstance(result, Tensor):
            node.meta |= {"layout": layout(result), "device": result.device}
            self._nodes[result] = node
        elif isinstance(result, list | tuple):
            for place, part in enumerate(result):
                self._name(self.graph.call_function(operator.getitem, (node, place)), part)

    def _name_constant(self, value: Tensor) -> None:
        name = f"constant_{len(list(self.constants.buffers()))}"
        self.constants.register_buffer(name, value)
        self._name(self.graph.get_attr(name), value)


class _Repeat(OperationObserver):
    """Checks that a step calls the same operations for other values.

    A network may read values where no operation shows it: through numpy, or `tolist`.
    """

    def __init__(self, called: Sequence[tuple[Any, ...]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._expected = deque(called)

    def observe(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Compare an operation with the one in its place."""
        if not self._expected or self._expected.popleft() != _call(func, args, kwargs):
            raise StructureError(f"{func} depends on values that it reads outside of torch.")
        return func(*args, **kwargs)

    def check_ended(self) -> None:
        """Refuse a step that called less."""
        if self._expected:
            raise StructureError("it calls other operations for other values.")


def _call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Say what is called, less the tensors; but with the values of a literal."""
    literal = func is torch.ops.aten.lift_fresh.default
    said = tree_leaves(tree_map(lambda v: type(v) if isinstance(v, Tensor) else v, (args, kwargs)))
    return (func, repr(said), repr(args[0].tolist()) if literal else None)


def _other(value: Tensor) -> Tensor:
    """Make other values that lie in memory as these do: other numbers, or in another order."""
    if any(size > 1 and not step for size, step in zip(value.shape, value.stride(), strict=True)):
        return value  # it is expanded
    other = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
    if value.is_floating_point():
        return other.copy_(value * 0.9 + 0.01)
    return other.copy_(value.flip(0) if value.ndim else value)


def _takes_rows(func: Any, args: Any) -> bool:
    """Tell whether an operation is indexing by numbers.

    torch tags all indexing as dynamic. But only the result of a mask depends on values in its size;
    rows taken by number are as many as the numbers.
    """
    if func is not torch.ops.aten.index.Tensor:
        return False
    return all(index is None or index.dtype in (torch.int64, torch.int32) for index in args[1])
