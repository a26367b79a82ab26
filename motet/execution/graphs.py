"""A step as a graph of tensor operations: traced, simplified, and made to write in place.

Tracing strips a step of everything but its arithmetic: no functional transforms, no Python of the
network, no copies that change nothing. What is left runs as fast as a loop written by hand for this
very network (docs/decisions/0007-traced-steps.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from motet.execution.additions import write_updates
from motet.execution.nodes import (
    PRODUCTS,
    aten,
    calls,
    is_by_rows,
    is_transposed,
    layout_of,
    number_of,
    shape_of,
    viewed,
    writes,
)
from motet.execution.pooling import pool_first
from motet.execution.recording import layout, recorded

FEW_ROWS = 64  # of a batch
LARGE = 2**16  # numbers of a layer's weights


def simplified(
    step: Callable[..., Sequence[Tensor]], values: Sequence[Tensor], donated: int
) -> fx.GraphModule:
    """Turn a function of tensors into a program for tensors of these shapes and strides.

    Args:
        step: A pure function; every tensor it needs is an argument.
        values: Tensors to trace with. They are not changed.
        donated: The program may overwrite its first `donated` arguments, which become its first
            results in the same order.
    """
    program = recorded(step, values)
    graph = program.graph
    _forget_values(graph)
    _replace(graph, _viewed_whole)
    pure = not any(writes(node) for node in calls(graph))
    if pure:  # else a node may differ from its equal, or from itself a little later
        _replace(graph, _copied)
        _share_equal_nodes(graph)
    graph.eliminate_dead_code()  # what nobody reads must not look like a reader below
    if pure:
        pool_first(graph)
    _transpose_factors_instead(graph)
    write_updates(graph, donated)
    _put_weights_first(graph)  # last: a product that is added where it is made stays as it is
    graph.eliminate_dead_code()
    graph.lint()
    program.recompile()
    return program


def _forget_values(graph: fx.Graph) -> None:
    """Make constants of `ones_like(loss)` and its multiples, so that nobody computes the loss."""
    for node in calls(graph):
        number = _constant(node)
        if number is None or len(shape_of(node)) > 1:
            continue
        shape, _, dtype = layout_of(node)
        with graph.inserting_before(node):
            options = {"dtype": dtype, "device": node.meta["device"]}
            constant = graph.call_function(aten.full.default, (list(shape), number), options)
        constant.meta |= node.meta
        node.replace_all_uses_with(constant)
        graph.erase_node(node)


def _constant(node: fx.Node) -> float | None:
    if node.target is aten.ones_like.default:
        return 1.0
    if node.target not in (aten.mul.Tensor, aten.mul.Scalar):
        return None
    a, b = (number_of(factor) for factor in node.args)
    return None if a is None or b is None else a * b


def _replace(graph: fx.Graph, same_as: Callable[[fx.Node], fx.Node | None]) -> None:
    """Leave out nodes that only repeat another one."""
    for node in calls(graph):
        same = same_as(node)
        if same is not None:
            node.replace_all_uses_with(same)
            graph.erase_node(node)


def _viewed_whole(node: fx.Node) -> fx.Node | None:
    """Find the node that this one sees just as it is."""
    source = viewed(node)
    while source is not None and layout_of(source) != layout_of(node):
        source = viewed(source)
    return source


def _copied(node: fx.Node) -> fx.Node | None:
    """Find the node whose numbers this one has again: once x, or x to the power of one."""
    once = node.target in (aten.mul.Scalar, aten.mul.Tensor, aten.pow.Tensor_Scalar)
    source = node.args[0] if once and node.args[1:] == (1,) else None
    if not isinstance(source, fx.Node) or layout_of(source) != layout_of(node):
        return None
    return source


def _share_equal_nodes(graph: fx.Graph) -> None:
    seen: dict[Any, fx.Node] = {}
    for node in calls(graph):
        key = (node.target, _frozen(node.args), _frozen(node.kwargs))
        first = seen.setdefault(key, node)
        if first is not node:
            node.replace_all_uses_with(first)
            graph.erase_node(node)


def _put_weights_first(graph: fx.Graph) -> None:
    """Make (w x')' of x w': matrix libraries are slower where the first factor has few rows."""
    for node in calls(graph):
        if node.target not in (aten.mm.default, aten.addmm.default) or node.kwargs:
            continue
        given: Any = node.args
        *bias, x, turned = given
        if not _is_large_and_turned(turned) or shape_of(node)[0] > FEW_ROWS:
            continue
        if any(len(shape_of(b)) != 1 for b in bias):
            continue
        target: Any = node.target
        with graph.inserting_before(node):
            columns = [graph.call_function(aten.unsqueeze.default, (b, 1)) for b in bias]
            factors = (turned.args[0], graph.call_function(aten.t.default, (x,)))
            product = graph.call_function(target, (*columns, *factors))
            back = graph.call_function(aten.t.default, (product,))
            by_rows: Any = {"memory_format": torch.contiguous_format}
            instead = graph.call_function(aten.clone.default, (back,), by_rows)
        instead.meta |= node.meta
        node.replace_all_uses_with(instead)
        graph.erase_node(node)


def _is_large_and_turned(factor: Any) -> bool:
    source = factor.args[0] if "layout" in factor.meta and is_transposed(factor) else None
    return source is not None and math.prod(shape_of(source)) >= LARGE and is_by_rows(source)


def _transpose_factors_instead(graph: fx.Graph) -> None:
    """Make b' a' of (a b)': the gradient of a layer's weights becomes a product by itself."""
    for node in calls(graph):
        product = node.args[0] if is_transposed(node) else None
        if not isinstance(product, fx.Node) or product.target not in PRODUCTS:
            continue
        if len(product.users) > 1:
            continue
        left, right = product.args
        with graph.inserting_before(node):
            factors = (_flipped(graph, right), _flipped(graph, left))
            instead = graph.call_function(product.target, factors)
        shape, _, dtype = layout_of(node)
        instead.meta["layout"] = layout(torch.empty(shape, dtype=dtype, device="meta"))
        node.replace_all_uses_with(instead)
        graph.erase_node(node)
        graph.erase_node(product)


def _flipped(graph: fx.Graph, factor: Any) -> fx.Node:
    if is_transposed(factor):
        source: fx.Node = factor.args[0]
        return source
    flipped = graph.call_function(aten.transpose.int, (factor, -2, -1))
    shape, stride, dtype = layout_of(factor)
    about = torch.empty_strided(shape, stride, dtype=dtype, device="meta")
    flipped.meta["layout"] = layout(about.transpose(-2, -1))
    return flipped


def _frozen(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_frozen(part) for part in value)
    if isinstance(value, dict):
        return tuple((name, _frozen(part)) for name, part in value.items())
    return (type(value), value)  # 1, 1.0 and True are equal, but not the same argument
