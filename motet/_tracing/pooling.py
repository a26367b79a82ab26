"""The pass that pools before it rectifies: `max_pool(relu(x))` becomes `relu(max_pool(x))`.

Rectifying keeps the order of numbers, so both give the same value to the last bit. Backwards, the
gradient of a window goes to its largest number, or nowhere if that is not positive, in both orders
as well. (If no number of a window is positive, the two pools may choose different ones. But the
gradient is 0 there.) With a pool of 2 x 2, a quarter of the numbers is left to rectify.

The pass must know every reader of the rectified image: nothing else may read it, or it would have
to be computed after all. So it looks for the exact forward and backward operations, and leaves the
graph alone if there is one more.
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

from torch import fx

from motet._tracing.nodes import aten, calls


class _Pool(NamedTuple):
    """A rectifier read by one pool only, and the backward operations of both."""

    relu: fx.Node
    pool: fx.Node
    values: fx.Node
    back: fx.Node | None  # the backward operation of the pool; None in a forward pass
    cut: fx.Node | None  # the one of the rectifier


def pool_first(graph: fx.Graph) -> None:
    """Swap every rectifier with the pool that is its only reader."""
    for node in calls(graph):
        found = _read(node) if node.target is aten.max_pool2d_with_indices.default else None
        if found is not None:
            _swap(graph, found)


def _read(pool: fx.Node) -> _Pool | None:
    """Find the operations around a pool; None if something else needs a value between them."""
    relu: Any = pool.args[0]
    if relu.target is not aten.relu.default:
        return None
    parts = {user.args[1]: user for user in pool.users if user.target is operator.getitem}
    back = _only(user for user in relu.users if _is_back(user, relu, parts.get(1)))
    cut = _only(user for user in relu.users if back and _is_cut(user, back, relu))
    way_back = [node for node in (back, cut) if node is not None]
    # The pool's indices point into the same window either way, but may differ where nothing is
    # positive. So only the pool's own backward operation may read them.
    seen_by_others = set(relu.users) - {pool, *way_back}
    needed = set(parts[1].users) if 1 in parts else set()
    half_way = back is not None and set(back.users) != {cut}
    if seen_by_others or needed - {back} or half_way or 0 not in parts:
        return None
    return _Pool(relu, pool, parts[0], back, cut)


def _swap(graph: fx.Graph, found: _Pool) -> None:
    relu, pool, values, back, cut = found
    x: Any = relu.args[0]
    pool.replace_input_with(relu, x)
    with graph.inserting_after(values):
        rectified = graph.call_function(aten.relu.default, (values,))
    rectified.meta |= values.meta
    values.replace_all_uses_with(rectified, delete_user_cb=lambda user: user is not rectified)
    if back is not None and cut is not None:  # the chain rule in the new order: rectifier, pool
        gradient: Any = back.args[0]
        with graph.inserting_before(back):
            call = (aten.threshold_backward.default, (gradient, rectified, 0))
            cut_first = graph.call_function(*call)
        cut_first.meta |= values.meta
        back.args = (cut_first, x, *back.args[2:])
        cut.replace_all_uses_with(back)
        graph.erase_node(cut)
    graph.erase_node(relu)


def _is_back(node: fx.Node, relu: fx.Node, indices: fx.Node | None) -> bool:
    is_backward = node.target is aten.max_pool2d_with_indices_backward.default
    return is_backward and node.args[1] is relu and node.args[-1] is indices


def _is_cut(node: fx.Node, back: fx.Node, relu: fx.Node) -> bool:
    return node.target is aten.threshold_backward.default and node.args == (back, relu, 0)


def _only(nodes: Any) -> fx.Node | None:
    found = list(nodes)
    return found[0] if len(found) == 1 else None
