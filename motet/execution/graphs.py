"""A step as a graph of tensor operations: traced, simplified, and made to write in place.

Tracing strips a step of everything but its arithmetic: no functional transforms, no Python of the
network, no copies that change nothing. What is left runs as fast as a loop written by hand for this
very network (docs/decisions/0007-traced-steps.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx

from motet.execution.recording import Layout, layout, recorded

aten = torch.ops.aten
Program = Callable[..., list[Tensor]]

# Views that start where their source starts: with its shape and strides, they are their source.
VIEWS = frozenset(
    {
        aten.view.default,
        aten._unsafe_view.default,
        aten.expand.default,
        aten.transpose.int,
        aten.permute.default,
        aten.t.default,
        aten.squeeze.dims,
        aten.squeeze.dim,
        aten.unsqueeze.default,
        aten.detach.default,
        aten.alias.default,
    }
)


PRODUCTS = frozenset({aten.bmm.default, aten.mm.default})


def traced(
    step: Callable[..., Sequence[Tensor]], values: Sequence[Tensor], *, donated: int
) -> Program:
    """Turn a function of tensors into a program for tensors of these shapes and strides.

    Args:
        step: A pure function; every tensor it needs is an argument.
        values: Tensors to trace with. They are not changed.
        donated: The program may overwrite its first `donated` arguments, which become its first
            results in the same order.
    """
    program = simplified(step, values, donated)
    program.recompile()
    forward: Program = program.forward
    return forward


def simplified(
    step: Callable[..., Sequence[Tensor]], values: Sequence[Tensor], donated: int
) -> fx.GraphModule:
    """Trace a step, and leave out of its graph what it can do without."""
    program = recorded(step, values)
    graph = program.graph
    _remove_what_changes_nothing(graph)
    if not any(_writes(node) for node in _calls(graph)):  # else a node may differ from its equal
        _share_equal_nodes(graph)
    graph.eliminate_dead_code()  # what nobody reads must not look like a reader below
    _transpose_factors_instead(graph)
    _update_in_place(graph, donated)
    graph.eliminate_dead_code()
    graph.lint()
    return program


def _remove_what_changes_nothing(graph: fx.Graph) -> None:
    for node in _calls(graph):
        same = _same_as(node)
        if same is not None:
            node.replace_all_uses_with(same)
            graph.erase_node(node)


def _same_as(node: fx.Node) -> fx.Node | None:
    """Find the node that this one only repeats."""
    if node.target in (aten.mul.Scalar, aten.mul.Tensor) and node.args[1:] == (1,):
        source = node.args[0]
        assert isinstance(source, fx.Node)
        return source if _layout(source) == _layout(node) else None
    source = _viewed(node)
    while source is not None:
        if _layout(source) == _layout(node):
            return source
        source = _viewed(source)
    return None


def _share_equal_nodes(graph: fx.Graph) -> None:
    seen: dict[Any, fx.Node] = {}
    for node in _calls(graph):
        key = (node.target, _frozen(node.args), _frozen(node.kwargs))
        first = seen.setdefault(key, node)
        if first is not node:
            node.replace_all_uses_with(first)
            graph.erase_node(node)


def _transpose_factors_instead(graph: fx.Graph) -> None:
    """Make b' a' of (a b)': the gradient of a layer's weights becomes a product by itself."""
    for node in _calls(graph):
        product = node.args[0] if _is_transposed(node) else None
        if not isinstance(product, fx.Node) or product.target not in PRODUCTS:
            continue
        if len(product.users) > 1:
            continue
        left, right = product.args
        with graph.inserting_before(node):
            factors = (_flipped(graph, right), _flipped(graph, left))
            instead = graph.call_function(product.target, factors)
        shape, _, dtype = _layout(node)
        instead.meta["layout"] = layout(torch.empty(shape, dtype=dtype, device="meta"))
        node.replace_all_uses_with(instead)
        graph.erase_node(node)
        graph.erase_node(product)


def _is_transposed(node: Any) -> bool:
    """Tell whether a node swaps the last two axes of its source."""
    if node.target is aten.t.default:
        return True
    axes = len(_layout(node)[0]) if node.target is aten.transpose.int else 0
    return axes >= 2 and {axis % axes for axis in node.args[1:]} == {axes - 2, axes - 1}


def _flipped(graph: fx.Graph, factor: Any) -> fx.Node:
    if _is_transposed(factor):
        source: fx.Node = factor.args[0]
        return source
    flipped = graph.call_function(aten.transpose.int, (factor, -2, -1))
    shape, stride, dtype = _layout(factor)
    about = torch.empty_strided(shape, stride, dtype=dtype, device="meta")
    flipped.meta["layout"] = layout(about.transpose(-2, -1))
    return flipped


def _update_in_place(graph: fx.Graph, donated: int) -> None:
    """Write `p - rate * gradient` into p itself, as part of the product where it is one."""
    owned = [node for node in graph.nodes if node.op == "placeholder"][:donated]
    end = next(node for node in graph.nodes if node.op == "output")
    results: list[Any] = list(end.args[0])
    for place, param in enumerate(owned):
        update = _update_of(param, results[place])
        if update is None or any(_root(r) is param for r in results if isinstance(r, fx.Node)):
            continue
        replaced = results[place]
        with graph.inserting_before(end):
            results[place] = _written(graph, update, frozenset(owned))
        end.args = (results,)
        if not replaced.users:
            graph.erase_node(replaced)


class _Update(NamedTuple):
    """`param - rate * gradient`, everywhere or only where a mask is true."""

    param: fx.Node
    rate: fx.Node
    gradient: fx.Node
    mask: fx.Node | None
    needed_elsewhere: bool  # the gradient


def _update_of(param: fx.Node, result: Any) -> _Update | None:
    mask, stepped = _where_masked(param, result)
    if not isinstance(stepped, fx.Node) or stepped.target is not aten.sub.Tensor:
        return None
    product = stepped.args[1]
    if stepped.args[0] is not param or not isinstance(product, fx.Node) or stepped.kwargs:
        return None
    if product.target is not aten.mul.Tensor:
        return None
    rate, gradient = product.args
    if not isinstance(rate, fx.Node) or not isinstance(gradient, fx.Node):
        return None
    plain = _layout(gradient)[0] == _layout(param)[0] and all(n == 1 for n in _layout(rate)[0][1:])
    shared = any(len(node.users) > 1 for node in (gradient, product, stepped))
    return _Update(param, rate, gradient, mask, shared) if plain else None


def _where_masked(param: fx.Node, result: Any) -> tuple[fx.Node | None, Any]:
    """Recognise `where(mask, result, param)`: clients without a batch stay as they are."""
    if isinstance(result, fx.Node) and result.target is aten.where.self:
        mask, stepped, otherwise = result.args
        if otherwise is param and isinstance(mask, fx.Node):
            return mask, stepped
    return None, result


def _written(graph: fx.Graph, update: _Update, owned: frozenset[fx.Node]) -> fx.Node:
    param, rate, gradient, mask, needed_elsewhere = update
    in_place: dict[Any, Any] = {
        aten.bmm.default: aten.baddbmm_.default,
        aten.mm.default: aten.addmm_.default,
    }

    def masked(node: fx.Node) -> fx.Node:
        return (
            node if mask is None else graph.call_function(aten.where.ScalarOther, (mask, node, 0))
        )

    factors = gradient.args[:2] if gradient.target in in_place else ()
    # A factor that looks into a parameter may see it after its own update.
    safe = factors and not any(_root(f) in owned for f in factors if isinstance(f, fx.Node))
    if not safe or needed_elsewhere or len(_layout(rate)[0]) not in (0, 3):
        arguments = (param, rate, masked(gradient))
        return graph.call_function(aten.addcmul_.default, arguments, {"value": -1})
    left, right = factors
    scaled = masked(graph.call_function(aten.mul.Tensor, (left, rate)))
    return graph.call_function(in_place[gradient.target], (param, scaled, right), {"alpha": -1})


def _writes(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable


def _calls(graph: fx.Graph) -> list[fx.Node]:
    return [node for node in graph.nodes if node.op == "call_function"]


def _viewed(node: fx.Node) -> fx.Node | None:
    source = node.args[0] if node.target in VIEWS else None
    return source if isinstance(source, fx.Node) else None


def _root(node: fx.Node) -> fx.Node:
    source = _viewed(node)
    return node if source is None else _root(source)


def _layout(node: fx.Node) -> Layout:
    known: Layout = node.meta["layout"]
    return known


def _frozen(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_frozen(part) for part in value)
    if isinstance(value, dict):
        return tuple((name, _frozen(part)) for name, part in value.items())
    return (type(value), value)  # 1, 1.0 and True are equal, but not the same argument
