"""What the passes over a graph need to know of its nodes."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from motet.execution.recording import Layout

aten = torch.ops.aten

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
    """Say how a node's result lies in memory."""
    known: Layout = node.meta["layout"]
    return known


def shape_of(node: fx.Node) -> tuple[int, ...]:
    """Say how large a node's result is."""
    return layout_of(node).shape


def viewed(node: fx.Node) -> fx.Node | None:
    """Return the node whose memory this one looks into, if it is a plain view."""
    source = node.args[0] if node.target in VIEWS else None
    return source if isinstance(source, fx.Node) else None


def root(node: fx.Node) -> fx.Node:
    """Return the node that owns the memory."""
    source = viewed(node)
    return node if source is None else root(source)


def writes(node: fx.Node) -> bool:
    """Tell whether an operation changes one of its arguments."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable


def is_by_rows(node: fx.Node) -> bool:
    """Tell whether a node's result lies in memory row by row."""
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
    """Say which number a node holds everywhere; None if that is not known."""
    if isinstance(node, int | float):
        return node
    if node.target is aten.full.default:
        number: float = node.args[1]
        return number
    source = node.args[0] if node.target is aten.select.int else viewed(node)
    return None if source is None else number_of(source)
