"""The passes over a recorded step: simplify it, and let it write in place.

Recording strips a step of everything but its arithmetic: no functional transforms, no Python of the
network. The passes remove operations that change nothing and write updates into the memory of the
old values. What is left runs as fast as a loop written by hand for this network
(docs/decisions/0007-traced-steps.md). No pass changes a result by more than rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from motet._tracing.additions import write_updates
from motet._tracing.layouts import layout
from motet._tracing.masking import add_masks, make_constants_once, stack_in_place
from motet._tracing.nodes import (
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
from motet._tracing.pooling import pool_first
from motet._tracing.recording import recorded
from motet._tracing.reuse import reuse_memory

# A product is turned around if it has at most this many rows and at least these many weights: below
# that, the extra transposition costs more than a faster product saves.
FEW_ROWS = 64
LARGE = 2**16


def simplified(
    step: Callable[..., Sequence[Tensor]],
    values: Sequence[Tensor],
    donated: int,
    constants: Sequence[Tensor] = (),
) -> fx.GraphModule:
    """Turn a function of tensors into a program for tensors of these shapes and strides.

    Args:
        step: A pure function; every tensor it needs is an argument, or a constant.
        values: Tensors to trace with. They are not changed.
        donated: The program may overwrite its first `donated` arguments, which become its first
            results in the same order.
        constants: Tensors that the step may read without being given them.
    """
    program = recorded(step, values, constants)
    graph = program.graph
    _fold_constants(graph)
    _replace(graph, _source_of_same_view)
    # A step that writes in place itself (batch normalisation, say) can read one node twice and see
    # different numbers. Then equal nodes are not interchangeable, and a copy is not its source.
    pure = not any(writes(node) for node in calls(graph))
    if pure:
        _replace(graph, _source_of_copy)
        _share_equal_nodes(graph)
        make_constants_once(program)
    # The passes below ask who reads a value, and a node without readers must not count.
    graph.eliminate_dead_code()
    if pure:
        pool_first(graph)
        add_masks(program)
        stack_in_place(graph)
    _transpose_factors_instead(graph)  # before updates are written: they look for plain products
    write_updates(graph, donated)
    _put_weights_first(graph)  # after: a product that was folded into an update must stay as it is
    graph.eliminate_dead_code()
    if pure:
        reuse_memory(graph)
    graph.lint()
    program.recompile()
    return program


def _fold_constants(graph: fx.Graph) -> None:
    """Replace `ones_like(loss)` and its multiples by constants.

    A backward pass starts at 1, which torch makes from the loss itself. Without this, the loss and
    everything that only it needs would look used. Larger tensors stay: they may be expanded views.
    """
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
    """Return the number that an operation fills its result with, if it is known beforehand."""
    if node.target is aten.ones_like.default:
        return 1.0
    if node.target not in (aten.mul.Tensor, aten.mul.Scalar):
        return None
    a, b = (number_of(factor) for factor in node.args)
    return None if a is None or b is None else a * b


def _replace(graph: fx.Graph, same_as: Callable[[fx.Node], fx.Node | None]) -> None:
    """Remove the nodes for which `same_as` knows an equal one."""
    for node in calls(graph):
        same = same_as(node)
        if same is not None:
            node.replace_all_uses_with(same)
            graph.erase_node(node)


def _source_of_same_view(node: fx.Node) -> fx.Node | None:
    """Find the node that this one is a view of, with the same shape and strides.

    Also through several views: a transposed transpose is the node itself.
    """
    source = viewed(node)
    while source is not None and layout_of(source) != layout_of(node):
        source = viewed(source)
    return source


def _source_of_copy(node: fx.Node) -> fx.Node | None:
    """Find the node whose numbers this one copies: x times 1, or x to the power of 1.

    `vmap` and the derivative of a square make them. The layouts must agree, because a view of the
    copy may rely on its strides.
    """
    once = node.target in (aten.mul.Scalar, aten.mul.Tensor, aten.pow.Tensor_Scalar)
    source = node.args[0] if once and node.args[1:] == (1,) else None
    if not isinstance(source, fx.Node) or layout_of(source) != layout_of(node):
        return None
    return source


def _share_equal_nodes(graph: fx.Graph) -> None:
    """Compute once what is computed several times: the same operation on the same arguments.

    `vmap` transposes and expands the same weights for the forward and for the backward pass.
    """
    seen: dict[Any, fx.Node] = {}
    for node in calls(graph):
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            continue  # two draws of random numbers are not equal
        key = (node.target, _frozen(node.args), _frozen(node.kwargs))
        first = seen.setdefault(key, node)
        if first is not node:
            node.replace_all_uses_with(first)
            graph.erase_node(node)


def _put_weights_first(graph: fx.Graph) -> None:
    """Compute x w' as (w x')': matrix libraries are slower if the first factor has few rows.

    Only for `mm` and `addmm`, which one client's layers make; stacks are large enough as they are.
    The copy at the end restores the layout that later views of the result were recorded with.
    """
    for node in calls(graph):
        if node.target not in (aten.mm.default, aten.addmm.default) or node.kwargs:
            continue
        given: Any = node.args
        *bias, x, turned = given
        if not _is_large_and_turned(turned) or shape_of(node)[0] > FEW_ROWS:
            continue
        if any(len(shape_of(b)) != 1 for b in bias):  # one number per output becomes a column
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
    """Compute (a b)' as b' a', so that the gradient of weights is a plain product.

    A product can be added to the weights by the operation that computes it, but its transpose
    cannot. If something else reads the product as well, it would be computed twice, so it stays.
    """
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
        # A new product is contiguous, unlike the transposed view that it replaces.
        shape, _, dtype = layout_of(node)
        instead.meta["layout"] = layout(torch.empty(shape, dtype=dtype, device="meta"))
        node.replace_all_uses_with(instead)
        graph.erase_node(node)
        graph.erase_node(product)


def _flipped(graph: fx.Graph, factor: Any) -> fx.Node:
    """Transpose a factor, or take the source of one that is transposed already."""
    if is_transposed(factor):
        source: fx.Node = factor.args[0]
        return source
    flipped = graph.call_function(aten.transpose.int, (factor, -2, -1))
    shape, stride, dtype = layout_of(factor)
    about = torch.empty_strided(shape, stride, dtype=dtype, device="meta")
    flipped.meta["layout"] = layout(about.transpose(-2, -1))
    return flipped


def _frozen(value: Any) -> Any:
    """Make arguments hashable, so that equal calls can be found."""
    if isinstance(value, list | tuple):
        return tuple(_frozen(part) for part in value)
    if isinstance(value, dict):
        return tuple((name, _frozen(part)) for name, part in value.items())
    return (type(value), value)  # 1, 1.0 and True are equal, but not the same argument
