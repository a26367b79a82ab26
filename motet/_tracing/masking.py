"""The passes over masks and heads, which attention consists of beside its products.

Filling by a mask is slow: torch walks the mask as if it had other values in every client, batch and
head. A mask that depends on no argument is made once; before a softmax it is added, as zeros and
minus infinities; and behind the derivative of that softmax it is left out, which is 0 there anyway.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, fx

from motet._tracing.layouts import layout
from motet._tracing.nodes import aten, calls, layout_of, root, shape_of, writes

# Operations that make a tensor from numbers alone.
MAKERS = frozenset(
    {
        aten.ones.default,
        aten.zeros.default,
        aten.full.default,
        aten.arange.default,
        aten.arange.start,
        aten.arange.start_step,
        aten.eye.default,
    }
)
LARGEST = 2**22  # numbers in what is made beforehand and kept


def make_constants_once(program: fx.GraphModule) -> None:
    """Compute what depends on no argument now, and not in every step: masks and positions."""
    known: dict[fx.Node, Tensor] = {}
    for node in calls(program.graph):
        value = _computed(node, known)
        if value is not None:
            known[node] = value
    for node, value in known.items():
        if node.target not in MAKERS and any(user not in known for user in node.users):
            _put_constant(program, node, value)


def add_masks(program: fx.GraphModule) -> None:
    """Turn `softmax(masked_fill(x, mask, -inf))` into `softmax(x + mask)`, with its derivative."""
    for node in calls(program.graph):
        softmax = _only_softmax(node) if _fills(node, -math.inf) else None
        if softmax is None:
            continue
        for user in list(softmax.users):
            if user.target is aten._softmax_backward_data.default and user.args[1] is softmax:
                _leave_out_zeros(program.graph, user, node.args[1])
        _add(program, node)


def stack_in_place(graph: fx.Graph) -> None:
    """Copy parts once: `stack(parts).permute(...).clone()` stacks them where they are wanted."""
    for node in calls(graph):
        turned: Any = node.args[0] if node.target is aten.clone.default else None
        if turned is None or turned.target is not aten.permute.default:
            continue
        stack: Any = turned.args[0]
        alone = stack.target is aten.stack.default and len(stack.users) == len(turned.users) == 1
        if alone and layout_of(node) == _contiguous(node):
            _stack_as(graph, node, stack, [axis % len(shape_of(node)) for axis in turned.args[1]])


def _computed(node: fx.Node, known: dict[fx.Node, Tensor]) -> Tensor | None:
    """Compute a node from constants; None if it needs anything else."""
    target: Any = node.target
    if not hasattr(target, "_schema") or writes(node) or "layout" not in node.meta:
        return None
    seeded = torch.Tag.nondeterministic_seeded in target.tags
    inputs = node.all_input_nodes
    if seeded or math.prod(shape_of(node)) > LARGEST or any(i not in known for i in inputs):
        return None
    if not inputs and target not in MAKERS:
        return None
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), known.__getitem__)
    value: Tensor = target(*args, **kwargs)
    return value


def _put_constant(program: fx.GraphModule, node: fx.Node, value: Tensor) -> None:
    with program.graph.inserting_before(node):
        constant = _constant(program, value)
    constant.meta |= node.meta
    node.replace_all_uses_with(constant)


def _constant(program: fx.GraphModule, value: Tensor) -> fx.Node:
    name = f"made_{sum(1 for kept, _ in program.named_buffers() if kept.startswith('made_'))}"
    program.register_buffer(name, value)
    node = program.graph.get_attr(name)
    node.meta |= {"layout": layout(value), "device": value.device}
    return node


def _fills(node: Any, value: float) -> bool:
    """Tell whether a node fills its first argument with a number, by a mask that is a constant."""
    if node.target is not aten.masked_fill.Scalar or node.args[2] != value:
        return False
    return root(node.args[1]).op == "get_attr"


def _only_softmax(node: fx.Node) -> fx.Node | None:
    """Find the softmax over the last axis that alone reads a node."""
    (*others, last) = node.users or [node]
    same = last.target is aten._softmax.default and last.args[0] is node
    return last if same and not others and last.args[1] in (-1, len(shape_of(node)) - 1) else None


def _leave_out_zeros(graph: fx.Graph, derivative: fx.Node, mask: Any) -> None:
    """Remove the same mask behind the derivative: it is 0 wherever the softmax is."""
    for user in list(derivative.users):
        filled = _fills(user, 0) and root(user.args[1]) is root(mask)  # type: ignore[arg-type]
        if filled and layout_of(user) == layout_of(derivative):
            user.replace_all_uses_with(derivative)
            graph.erase_node(user)


def _add(program: fx.GraphModule, node: fx.Node) -> None:
    source, mask, _ = node.args
    with program.graph.inserting_before(node):
        added = _constant(program, _as_numbers(program, mask, layout_of(node).dtype))
        total = program.graph.call_function(aten.add.Tensor, (source, added))
    total.meta |= node.meta
    node.replace_all_uses_with(total)
    program.graph.erase_node(node)


def _as_numbers(program: fx.GraphModule, mask: Any, dtype: torch.dtype) -> Tensor:
    """Turn a mask, or a view of one, into zeros and minus infinities."""
    if mask.op == "get_attr":
        marks = program.get_buffer(mask.target)
        return torch.zeros(marks.shape, dtype=dtype, device=marks.device).masked_fill(
            marks, -math.inf
        )
    inner = _as_numbers(program, mask.args[0], dtype)
    value: Tensor = mask.target(inner, *mask.args[1:], **mask.kwargs)
    return value


def _stack_as(graph: fx.Graph, node: fx.Node, stack: Any, order: list[int]) -> None:
    """Replace a permuted copy of a stack by a stack of permuted parts."""
    parts, *rest = stack.args
    axis = (rest[0] if rest else 0) % len(order)
    place = order.index(axis)  # of the stacked axis in the result
    within = [old - (old > axis) for old in order if old != axis]
    with graph.inserting_before(node):
        turned = [graph.call_function(aten.permute.default, (part, within)) for part in parts]
        instead = graph.call_function(aten.stack.default, (turned, place))
    for new, part in zip(turned, parts, strict=True):
        shape, stride, dtype = layout_of(part)
        about = torch.empty_strided(shape, stride, dtype=dtype, device="meta")
        new.meta |= {"layout": layout(about.permute(within)), "device": part.meta["device"]}
    instead.meta |= node.meta
    node.replace_all_uses_with(instead)
    graph.erase_node(node)


def _contiguous(node: fx.Node) -> Any:
    shape, _, dtype = layout_of(node)
    return layout(torch.empty(shape, dtype=dtype, device="meta"))
