"""Programs without Python: a simplified step as a graph of torch's own interpreter.

A `torch.fx` graph is replayed by Python, which takes some microseconds and its lock for every
operation, so that two threads wait for each other hundreds of times a step. torch's interpreter
calls the same operations in the same order on the same memory, bit for bit the same, and holds the
lock only at the beginning and at the end of a step. Nothing is optimized by it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from motet.errors import StructureError

Run = Callable[..., Sequence[Tensor]]
_NUMBERS: dict[Any, int] = {  # how the interpreter's schemas write them
    torch.strided: 0,
    torch.contiguous_format: 0,
    torch.preserve_format: 1,
    torch.channels_last: 2,
    torch.channels_last_3d: 3,
    torch.uint8: 0,
    torch.int8: 1,
    torch.int16: 2,
    torch.int32: 3,
    torch.int64: 4,
    torch.float16: 5,
    torch.float32: 6,
    torch.float64: 7,
    torch.complex64: 9,
    torch.complex128: 10,
    torch.bool: 11,
    torch.bfloat16: 15,
}


def scripted(program: fx.GraphModule) -> Run:
    """Return a program as one call of torch's interpreter; as it is if that is not possible."""
    try:
        core: Any = torch._C
        run = core._create_function_from_graph("step", _Translation(program).graph)
        was_on, switch = core._get_graph_executor_optimize, core._set_graph_executor_optimize
    except Exception:  # another torch, or an operation that the interpreter does not know
        return program.forward

    def unoptimized(*values: Tensor) -> Sequence[Tensor]:
        before = was_on()
        switch(False)  # noqa: FBT003 - for this thread; else torch would compile, and change bits
        try:
            results: Sequence[Tensor] = run(*values)
        finally:
            switch(before)
        return results

    return unoptimized


class _Translation:
    """Writes a program down for torch's interpreter."""

    def __init__(self, program: fx.GraphModule) -> None:
        self.graph: Any = torch._C.Graph()
        self._program = program
        self._values: dict[fx.Node, Any] = {}
        self._tensor = torch._C.TensorType.get()
        for node in program.graph.nodes:
            self._add(node)
        self.graph.lint()

    def _add(self, node: fx.Node) -> None:
        values = self._values
        if node.op == "placeholder":
            values[node] = self.graph.addInput()
            values[node].setType(self._tensor)
        elif node.op == "get_attr":
            values[node] = self._constant(getattr(self._program, str(node.target)))
        elif node.op == "output":
            new: Any = node.args[0]
            tensors = [values[result] for result in new]
            kind = torch._C.TupleType([self._tensor] * len(tensors))
            self.graph.registerOutput(self._call("prim::TupleConstruct", tensors, kind))
        elif node.target is operator.getitem:
            source, place = node.args
            values[node] = self._part(values[source], place)  # type: ignore[index]
        else:
            values[node] = self._operation(node)

    def _operation(self, node: fx.Node) -> Any:
        """Add a call of an operation, of the very overload that was recorded.

        `x * 0.5` is recorded as a product of tensors. Most operations have another overload for
        numbers; the others get a tensor.
        """
        schema: Any = node.target._schema  # type: ignore[union-attr]
        values = [_argument(node, place, about) for place, about in enumerate(schema.arguments)]
        kinds = [str(about.type) for about in schema.arguments]
        loose = [k == "Tensor" and _is_number(v) for v, k in zip(values, kinds, strict=True)]
        inputs = [self._input(v, k) for v, k in zip(values, kinds, strict=True)]
        call = self._inserted(schema, inputs)
        found = call.schema()
        if any(loose) and not found.startswith(f"{schema.name}."):
            call.destroy()
            for place in (place for place, is_loose in enumerate(loose) if is_loose):
                inputs[place] = self._constant(_as_tensor(values[place], node))
            call = self._inserted(schema, inputs)
            found = call.schema()
        if found != str(schema) and not any(loose):
            raise StructureError(f"torch's interpreter has {found} in place of {schema}.")
        outputs = list(call.outputs())
        return outputs[0] if len(outputs) == 1 else outputs

    def _inserted(self, schema: Any, inputs: list[Any]) -> Any:
        call = self.graph.create(schema.name, inputs, len(schema.returns))
        for output, about in zip(call.outputs(), schema.returns, strict=True):
            output.setType(about.type)
        self.graph.insertNode(call)
        return call

    def _input(self, value: Any, kind: str) -> Any:
        if isinstance(value, fx.Node):
            return self._values[value]
        if isinstance(value, list | tuple) and (not value or "Tensor" in kind):
            parts = [self._input(part, "") for part in value]
            part: Any = self._tensor if "Tensor" in kind else torch._C.IntType.get()
            part = torch._C.OptionalType(part) if "Optional[Tensor]" in kind else part
            return self._call("prim::ListConstruct", parts, torch._C.ListType(part))
        if isinstance(value, torch.dtype | torch.layout | torch.memory_format):
            value = _NUMBERS[value]
        elif kind in ("float", "Optional[float]") and isinstance(value, int):
            value = float(value)
        return self.graph.insertConstant(list(value) if isinstance(value, tuple) else value)

    def _constant(self, value: Tensor) -> Any:
        # Not `insertConstant`, which makes a number of a tensor without dimensions.
        constant = self.graph.create("prim::Constant", [], 1)
        constant.t_("value", value.detach())
        constant.output().setType(self._tensor)
        self.graph.insertNode(constant)
        return constant.output()

    def _part(self, source: Any, place: Any) -> Any:
        if isinstance(source, list):  # an operation with several results
            return source[place]
        where = self.graph.insertConstant(place)
        return self._call("aten::__getitem__", [source, where], self._tensor)

    def _call(self, name: str, inputs: list[Any], kind: Any) -> Any:
        call = self.graph.create(name, inputs, 1)
        call.output().setType(kind)
        self.graph.insertNode(call)
        return call.output()


def _argument(node: fx.Node, place: int, about: Any) -> Any:
    """Find an argument by place, by name, or by default."""
    if about.name == "implicit":  # torch's interpreter drops implicit expansions
        return False
    if about.name in node.kwargs:
        return node.kwargs[about.name]
    if place < len(node.args) and not about.kwarg_only:
        return node.args[place]
    return about.default_value


def _is_number(value: Any) -> bool:
    return isinstance(value, bool | int | float)


def _as_tensor(number: float, node: fx.Node) -> Tensor:
    """Make a tensor of a number, in the precision of what an operation makes of it."""
    if not isinstance(number, float):
        return torch.tensor(number, device="cpu")
    kind = node.meta["layout"].dtype  # without it, the precision is unknown
    return torch.tensor(number, dtype=kind if kind.is_floating_point else None, device="cpu")
