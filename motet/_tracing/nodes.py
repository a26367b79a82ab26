"""Questions about the nodes of a recorded graph, as the passes ask them.

Nodes carry the layout of their result (`meta["layout"]`), which is fixed: a program is made for
tensors of one shape. So questions about memory have exact answers.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from motet._tracing.layouts import Layout

aten = torch.ops.aten

# Views that start at the first number of their source. If shape and strides agree as well, such a
# view is its source. `select` and `slice` are missing for that reason: they start elsewhere.
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
# With `bmm` for a stack of clients and `mm` for one client, these are all products of a layer.
PRODUCTS = frozenset({aten.bmm.default, aten.mm.default})


def calls(graph: fx.Graph) -> list[fx.Node]:
    """List the operations of a graph, in order."""
    return [node for node in graph.nodes if node.op == "call_function"]


def placeholders(graph: fx.Graph) -> list[fx.Node]:
    """List the arguments of a graph, in order."""
    return [node for node in graph.nodes if node.op == "placeholder"]


def results(graph: fx.Graph) -> list[fx.Node]:
    """List the results of a graph, in order."""
    end = next(node for node in graph.nodes if node.op == "output")
    returned: list[fx.Node] = end.args[0]
    return returned


def layout_of(node: fx.Node) -> Layout:
    """Return the layout of a node's result."""
    known: Layout = node.meta["layout"]
    return known


def shape_of(node: fx.Node) -> tuple[int, ...]:
    """Return the shape of a node's result."""
    return layout_of(node).shape


def viewed(node: fx.Node) -> fx.Node | None:
    """Return the node whose memory this one shares, if it is a view from `VIEWS`."""
    source = node.args[0] if node.target in VIEWS else None
    return source if isinstance(source, fx.Node) else None


def root(node: fx.Node) -> fx.Node:
    """Follow plain views to their source; the node itself if it is not a plain view."""
    source = viewed(node)
    return node if source is None else root(source)


def shared(node: fx.Node) -> fx.Node | None:
    """Return the node whose memory this one may share in part: a slice, a chunk, any view.

    torch's schemas say so, also for operations that no pass knows: whatever is overwritten in place
    must not be read any more through any of them. An operation that writes is not a view: its
    result is the new value of that memory.
    """
    if node.target is operator.getitem:  # of a list of views, or of results by themselves
        several: Any = node.args[0]
        return several if shared(several) is not None else None
    schema: Any = getattr(node.target, "_schema", None)
    returned = () if schema is None else schema.returns
    if not any(result.alias_info and not result.alias_info.is_write for result in returned):
        return viewed(node)  # `_unsafe_view` is one, though its schema does not say so
    pairs = zip(schema.arguments, node.args, strict=False)
    sources = [given for argument, given in pairs if argument.alias_info]
    return next((source for source in sources if isinstance(source, fx.Node)), None)


def owner(node: fx.Node) -> fx.Node:
    """Return the node whose memory this one lies in; the node itself if it has its own."""
    source = shared(node)
    return node if source is None else owner(source)


def writes(node: fx.Node) -> bool:
    """Tell whether an operation changes one of its arguments."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable


def is_by_rows(node: fx.Node) -> bool:
    """Tell whether a node's result is contiguous."""
    shape, stride, _ = layout_of(node)
    return torch.empty(shape, device="meta").stride() == stride


def is_transposed(node: Any) -> bool:
    """Tell whether a node swaps the last two axes of its source."""
    if node.target is aten.t.default:
        return True
    if node.target not in (aten.transpose.int, aten.permute.default):
        return False
    axes = len(shape_of(node))
    if node.target is aten.transpose.int:
        return axes >= 2 and {axis % axes for axis in node.args[1:]} == {axes - 2, axes - 1}
    return [axis % axes for axis in node.args[1]] == [*range(axes - 2), axes - 1, axes - 2]


def number_of(node: Any) -> float | None:
    """Return the number that fills a node's result; None if it is not constant or not known."""
    if isinstance(node, int | float):
        return node
    if node.target is aten.full.default:
        number: float = node.args[1]
        return number
    source = node.args[0] if node.target is aten.select.int else viewed(node)
    return None if source is None else number_of(source)
