"""The pass that writes updates: terms added one after another, into the same memory.

`motet._tracing.updates` tells which nodes are updates. Here they are replaced by in-place
operations wherever the old value is not needed any more.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from torch import fx

from motet._tracing.nodes import aten, calls, layout_of, owner, placeholders, results, shape_of
from motet._tracing.updates import Reader, Term, Update, is_read_up_to, parts, where_masked

# Pairs of an operation and its in-place form. The first term of an update may be out of place, if
# the base is still needed; from then on the new memory is the update's own.
SCALE = (aten.mul.Tensor, aten.mul_.Tensor)
ADD = (aten.add.Tensor, aten.add_.Tensor)
ADD_SCALED = (aten.addcmul.default, aten.addcmul_.default)
ADD_PRODUCT = {
    aten.mm.default: (aten.addmm.default, aten.addmm_.default),
    aten.bmm.default: (aten.baddbmm.default, aten.baddbmm_.default),
}
PULL = (aten.lerp.Scalar, aten.lerp_.Scalar)
PULL_EACH = (aten.lerp.Tensor, aten.lerp_.Tensor)
HALF = 0.5
ROUNDING = 1e-12  # 0.9 + (1 - 0.9) is not always 1


def write_updates(graph: fx.Graph, donated: int) -> None:
    """Write new values over old ones that are not needed any more, and shorten all steps.

    Args:
        graph: A simplified step.
        donated: How many of the first arguments may be overwritten by the results that replace
            them.
    """
    returned = results(graph)
    looked_at = Counter(owner(result) for result in returned)
    pairs = zip(returned, placeholders(graph)[:donated], strict=False)
    # Two results in the same memory would overwrite two old values by one; then neither is written.
    old_values = {new: old for new, old in pairs if looked_at[owner(new)] == 1}
    # The step inside of a `where` is read together with it, so it is not written by itself.
    part_of_another = {where_masked(old, new)[1] for new, old in old_values.items()} - set(returned)
    reader = Reader()
    writer = _Writer(graph, reader)
    made: set[fx.Node] = set()  # values in the step's own memory, which it may overwrite
    for node in calls(graph):  # in order: what is not yet overwritten can still be read
        update = reader.replacement(old_values[node], node) if node in old_values else None
        if update is not None:
            writer.write(node, update, in_place=True)
            reader.overwritten.add(update.base)
            continue
        update = None if node in part_of_another else reader.step(node)
        if update is not None:
            again = update.base in made and is_read_up_to(node, update.base)
            written = writer.write(node, update, in_place=again)
            if written is update.base:  # nothing was added, so the memory may be an argument
                continue
            made.add(written)
            if again:
                reader.overwritten.add(update.base)


@dataclass
class _Writer:
    """Replaces nodes of a graph by updates."""

    graph: fx.Graph
    reader: Reader
    _made: dict[tuple[tuple[fx.Node, ...], float], fx.Node] = field(default_factory=dict)

    def write(self, node: fx.Node, update: Update, *, in_place: bool) -> fx.Node:
        """Replace a node by the terms of an update, and return the node of the new value."""
        value = update.base
        with self.graph.inserting_before(node):
            for addition in self._additions(update):
                target = addition.targets[in_place]
                value = self._call(target, value, *addition.operands, **addition.options)
                in_place = True  # the first operation has made memory of its own
        if value is not update.base:
            value.meta |= node.meta
        node.replace_all_uses_with(value)
        self.graph.erase_node(node)
        return value

    def _additions(self, update: Update) -> Iterator[_Addition]:
        """List the operations in an order in which the old base is read first."""
        at_once = self._scaled_addition(update)
        if at_once is not None:
            yield at_once
            update = update._replace(others=[], products=update.products[1:])
        elif update.number != 1:
            yield _Addition(SCALE, (update.number,))
        for term in update.pulls:
            yield self._pull(term, update.mask)
        for term in sorted(update.others, key=lambda term: term.tensor is not update.base):
            yield self._addition(term, update)
        for term in update.products:
            yield self._product(term, update.mask)

    def _scaled_addition(self, update: Update) -> _Addition | None:
        """Scale the base and add a term in one walk over memory, if one operation does both."""
        if update.number == 1 or update.pulls or update.mask is not None:
            return None
        if update.products and not update.others:  # momentum
            product = self._product(update.products[0], None)
            return product._replace(options={**product.options, "beta": update.number})
        if len(update.others) != 1 or update.products or update.others[0].factors:
            return None
        (term,) = update.others
        # A running mean: (1 - t) base + t new.
        if update.number < HALF or abs(update.number + term.number - 1) > ROUNDING:
            return None
        return _Addition(PULL, (term.tensor, term.number))

    def _pull(self, term: Term, mask: fx.Node | None) -> _Addition:
        """Move from the base towards the anchor: base + t (anchor - base)."""
        _, anchor = parts(term.tensor)
        way = -term.number  # a term is a multiple of base - anchor
        if not term.factors and mask is None:
            return _Addition(PULL, (anchor, way))
        if term.factors:
            weight = self._masked(self._factor(term.factors, way), mask)
        else:
            ones = self._call(aten._to_copy.default, mask, dtype=layout_of(term.tensor).dtype)
            weight = self._call(aten.mul.Tensor, ones, way)
        return _Addition(PULL_EACH, (anchor, weight))

    def _addition(self, term: Term, update: Update) -> _Addition:
        tensor = self._masked(term.tensor, update.mask)
        if term.factors:
            options = {"value": term.number}
            return _Addition(ADD_SCALED, (self._factor(term.factors), tensor), options)
        root = _squared(term.tensor)
        if update.mask is None and root is not None and self._can_be_read(root, update.base):
            return _Addition(ADD_SCALED, (root, root), {"value": term.number})
        return _Addition(ADD, (tensor,), {"alpha": term.number})

    def _product(self, term: Term, mask: fx.Node | None) -> _Addition:
        given: Any = term.tensor.args
        left, right = given
        if term.factors:
            factor = self._factor(term.factors)
            if _is_smaller(right, left) and owner(right).op != "placeholder":
                right, about = self._call(aten.mul.Tensor, right, factor), right.meta
                right.meta |= about
            else:  # data stay as they are: whoever defers an update looks for them
                left = self._call(aten.mul.Tensor, left, factor)
        operands = (self._masked(left, mask), right)
        target: Any = term.tensor.target
        return _Addition(ADD_PRODUCT[target], operands, {"alpha": term.number})

    def _can_be_read(self, node: fx.Node, base: fx.Node) -> bool:
        """Tell whether a value is what it was when the step was written."""
        return owner(node) is not base and self.reader.is_there(node)

    def _masked(self, node: Any, mask: fx.Node | None) -> Any:
        """Make a term 0 where nothing may change, also where it is NaN (unlike a factor of 0)."""
        return node if mask is None else self._call(aten.where.ScalarOther, mask, node, 0)

    def _factor(self, factors: tuple[fx.Node, ...], number: float = 1.0) -> fx.Node:
        """Multiply small factors: once for all updates that use the same ones."""
        if (factors, number) not in self._made:
            product = factors[0]
            for other in (*factors[1:], *([number] if number != 1 else [])):
                product = self._call(aten.mul.Tensor, product, other)
            self._made[factors, number] = product
        return self._made[factors, number]

    def _call(self, target: Any, *args: Any, **options: Any) -> fx.Node:
        return self.graph.call_function(target, args, options)


def _is_smaller(node: Any, other: Any) -> bool:
    """Tell whether a node has fewer numbers than another; False if that is not known."""
    known = "layout" in node.meta and "layout" in other.meta
    return known and math.prod(shape_of(node)) < math.prod(shape_of(other))


def _squared(node: fx.Node) -> fx.Node | None:
    """Return the tensor that a node squares, if no other node needs the square."""
    root = node.args[0] if node.target is aten.pow.Tensor_Scalar and node.args[1] == 2 else None
    return root if isinstance(root, fx.Node) and len(node.users) == 1 else None


class _Addition(NamedTuple):
    """An operation that adds to the value so far."""

    targets: tuple[Any, Any]
    operands: tuple[Any, ...]
    options: Mapping[str, Any] = MappingProxyType({})
