"""The pass that reuses memory: the memory of a value that is read no more goes to the next one.

`sqrt(v) / spread + eps` makes three tensors as large as the weights; the last two can lie where the
first one did. Memory that is used again is still in the cache, and need not be asked for.
"""

from __future__ import annotations

from typing import Any

from torch import fx

from motet._tracing.nodes import aten, calls, layout_of, owner, shared, writes
from motet._tracing.updates import is_read_up_to

# Operations by number, and their forms that write over the first operand.
IN_PLACE = {
    aten.add.Tensor: aten.add_.Tensor,
    aten.sub.Tensor: aten.sub_.Tensor,
    aten.mul.Tensor: aten.mul_.Tensor,
    aten.div.Tensor: aten.div_.Tensor,
    aten.sqrt.default: aten.sqrt_.default,
    aten.neg.default: aten.neg_.default,
    aten.pow.Tensor_Scalar: aten.pow_.Scalar,
    aten.addcmul.default: aten.addcmul_.default,
    aten.lerp.Scalar: aten.lerp_.Scalar,
    aten.lerp.Tensor: aten.lerp_.Tensor,
}
EITHER_WAY = frozenset({aten.add.Tensor, aten.mul.Tensor})  # unless one of them is scaled


def reuse_memory(graph: fx.Graph) -> None:
    """Let operations write over operands that nothing reads afterwards; no bit changes."""
    own: set[fx.Node] = set()  # results that lie in memory which the step has made itself
    for node in calls(graph):
        if _is_new_memory(node):
            own.add(node)
        in_place = IN_PLACE.get(node.target)  # type: ignore[call-overload]
        if in_place is None or "layout" not in node.meta:
            continue
        place = _overwritable(node, own)
        if place is None:
            continue
        operands = list(node.args)
        operands[0], operands[place] = operands[place], operands[0]
        node.target, node.args = in_place, tuple(operands)


def _overwritable(node: fx.Node, own: set[fx.Node]) -> int | None:
    """Say which operand of a node may be overwritten by its result."""
    turned = node.target in EITHER_WAY and not node.kwargs
    for place in range(2 if turned else 1):
        operand: Any = node.args[place]
        if not isinstance(operand, fx.Node) or operand not in own:
            continue
        if layout_of(operand) != layout_of(node) or not is_read_up_to(node, operand):
            continue
        others = [value for number, value in enumerate(node.args) if number != place]
        if not any(isinstance(v, fx.Node) and owner(v) is operand for v in others):
            return place
    return None


def _is_new_memory(node: fx.Node) -> bool:
    """Tell whether a node's result was made by its operation, and is no view or argument."""
    made = node.op == "call_function" and hasattr(node.target, "_schema")
    return made and "layout" in node.meta and shared(node) is None and not writes(node)
