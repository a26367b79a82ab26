"""A function of tensors, written down: every operation that it calls, in order.

torch's own tracer, `make_fx`, does the same and more. But it patches `nn.Module` for every thread,
so that nobody may run a network meanwhile, and brings symbolic shapes along: 70 MB, and more than a
second of imports. Here shapes are fixed, and nothing outside of this thread is touched.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_map
from torch.utils.weak import WeakTensorKeyDictionary

from motet.errors import StructureError
from motet.execution.watching import Watching

NO_GRAPH_CAN_HOLD = frozenset({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape})


class Layout(NamedTuple):
    """How a tensor lies in memory."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype


def recorded(step: Callable[..., Sequence[Tensor]], values: Sequence[Tensor]) -> fx.GraphModule:
    """Run a step once, and return what it did as a graph; every node knows its result's layout.

    Raises:
        StructureError: The step decides by the value of a tensor, or reads a tensor that it was not
            given.
    """
    step(*values)  # what is made once, on first use, such as a thread's own network, is made here
    recorder = _Recorder(values)
    with recorder:
        results = step(*values)
    recorder.graph.output([recorder.node_of(result) for result in results])
    return fx.GraphModule(recorder.constants, recorder.graph)


def layout(tensor: Tensor) -> Layout:
    """Say how a tensor lies in memory."""
    return Layout(tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype)


class _Recorder(Watching):
    """Sees operations on plain tensors, with gradients already taken."""

    def __init__(self, values: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.graph = fx.Graph()
        self.constants = torch.nn.Module()
        # By identity, and weakly: a step's results need not all be in memory at once.
        self._nodes = WeakTensorKeyDictionary()
        for number, value in enumerate(values):
            self._name(self.graph.placeholder(f"value_{number}"), value)

    def seen(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Write an operation down while it runs."""
        if NO_GRAPH_CAN_HOLD.intersection(func.tags) and not _takes_rows(func, args):
            raise StructureError(f"{func} decides by the value of a tensor.")
        if func is torch.ops.aten.lift_fresh.default:  # a literal, such as torch.tensor(2.0)
            self._name_constant(args[0])
        inputs = tree_map(self._as_input, (args, kwargs))
        result = func(*args, **kwargs)
        self._name(self.graph.call_function(func, *inputs), result)
        return result

    def node_of(self, tensor: Tensor) -> fx.Node:
        """Find where a tensor comes from."""
        try:
            node: fx.Node = self._nodes[tensor]
        except KeyError:
            raise StructureError(
                f"it reads a tensor of shape {tuple(tensor.shape)} that is not among its arguments."
            ) from None
        return node

    def _as_input(self, value: Any) -> Any:
        return self.node_of(value) if isinstance(value, Tensor) else value

    def _name(self, node: fx.Node, result: Any) -> None:
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


def _takes_rows(func: Any, args: Any) -> bool:
    """Tell indexing by numbers, whose result is as large as the index, from indexing by a mask."""
    if func is not torch.ops.aten.index.Tensor:
        return False
    return all(index is None or index.dtype in (torch.int64, torch.int32) for index in args[1])
