"""Updates written into a graph: terms added one after another, into the same memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from torch import fx

from motet.execution.nodes import aten, calls, layout_of, placeholders, results, root
from motet.execution.updates import Reader, Term, Update, is_read_up_to, parts, where_masked

# Each out of place, and in place.
SCALE = (aten.mul.Tensor, aten.mul_.Tensor)
ADD = (aten.add.Tensor, aten.add_.Tensor)
ADD_SCALED = (aten.addcmul.default, aten.addcmul_.default)
ADD_PRODUCT = {
    aten.mm.default: (aten.addmm.default, aten.addmm_.default),
    aten.bmm.default: (aten.baddbmm.default, aten.baddbmm_.default),
}
PULL = (aten.lerp.Scalar, aten.lerp_.Scalar)
PULL_EACH = (aten.lerp.Tensor, aten.lerp_.Tensor)


def write_updates(graph: fx.Graph, donated: int) -> None:
    """Write new values over old ones that nobody needs any more, and shorten steps everywhere.

    Args:
        graph: A step, with what is superfluous left out.
        donated: The first so many arguments may be overwritten; the first results replace them.
    """
    returned = results(graph)
    looked_at = Counter(root(result) for result in returned)
    pairs = zip(returned, placeholders(graph)[:donated], strict=False)
    old_values = {new: old for new, old in pairs if looked_at[root(new)] == 1}
    part_of_another = {where_masked(old, new)[1] for new, old in old_values.items()} - set(returned)
    reader, writer = Reader(), _Writer(graph)
    made: set[fx.Node] = set()  # values in memory of the step's own
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
            if written is update.base:  # nothing was added, so it may be anybody's memory
                continue
            made.add(written)
            if again:
                reader.overwritten.add(update.base)


@dataclass
class _Writer:
    """Puts updates into a graph."""

    graph: fx.Graph
    _made: dict[tuple[tuple[fx.Node, ...], float], fx.Node] = field(default_factory=dict)

    def write(self, node: fx.Node, update: Update, *, in_place: bool) -> fx.Node:
        """Replace a node by the terms of an update, added one after another."""
        value = update.base
        with self.graph.inserting_before(node):
            for addition in self._additions(update):
                target = addition.targets[in_place]
                value = self._call(target, value, *addition.operands, **addition.options)
                in_place = True  # from now on, in the memory of this very update
        if value is not update.base:
            value.meta |= node.meta
        node.replace_all_uses_with(value)
        self.graph.erase_node(node)
        return value

    def _additions(self, update: Update) -> Iterator[_Addition]:
        if update.number != 1:
            yield _Addition(SCALE, (update.number,))
        for term in update.pulls:
            yield self._pull(term, update.mask)
        for term in sorted(update.others, key=lambda term: term.tensor is not update.base):
            yield self._addition(term, update.mask)
        for term in update.products:
            yield self._product(term, update.mask)

    def _pull(self, term: Term, mask: fx.Node | None) -> _Addition:
        """Walk from the base to the anchor: base + t (anchor - base)."""
        _, anchor = parts(term.tensor)
        way = -term.number
        if not term.factors and mask is None:
            return _Addition(PULL, (anchor, way))
        if term.factors:
            weight = self._masked(self._factor(term.factors, way), mask)
        else:
            ones = self._call(aten._to_copy.default, mask, dtype=layout_of(term.tensor).dtype)
            weight = self._call(aten.mul.Tensor, ones, way)
        return _Addition(PULL_EACH, (anchor, weight))

    def _addition(self, term: Term, mask: fx.Node | None) -> _Addition:
        tensor = self._masked(term.tensor, mask)
        if term.factors:
            options = {"value": term.number}
            return _Addition(ADD_SCALED, (self._factor(term.factors), tensor), options)
        return _Addition(ADD, (tensor,), {"alpha": term.number})

    def _product(self, term: Term, mask: fx.Node | None) -> _Addition:
        left, right = term.tensor.args
        if term.factors:
            left = self._call(aten.mul.Tensor, left, self._factor(term.factors))
        operands = (self._masked(left, mask), right)
        target: Any = term.tensor.target
        return _Addition(ADD_PRODUCT[target], operands, {"alpha": term.number})

    def _masked(self, node: Any, mask: fx.Node | None) -> Any:
        """Make it 0 where nothing may change, even where it is no number."""
        return node if mask is None else self._call(aten.where.ScalarOther, mask, node, 0)

    def _factor(self, factors: tuple[fx.Node, ...], number: float = 1.0) -> fx.Node:
        """Multiply what is small: once, for all the updates that use the same."""
        if (factors, number) not in self._made:
            product = factors[0]
            for other in (*factors[1:], *([number] if number != 1 else [])):
                product = self._call(aten.mul.Tensor, product, other)
            self._made[factors, number] = product
        return self._made[factors, number]

    def _call(self, target: Any, *args: Any, **options: Any) -> fx.Node:
        return self.graph.call_function(target, args, options)


class _Addition(NamedTuple):
    """An operation on the value so far."""

    targets: tuple[Any, Any]
    operands: tuple[Any, ...]
    options: Mapping[str, Any] = MappingProxyType({})
