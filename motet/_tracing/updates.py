"""The pass that reads updates: which nodes of a graph are steps of gradient descent.

As it is written, `w - rate * (gradient + strength * (w - anchor))` reads and writes memory of the
size of the parameters six times. Here it is read as a base, `w`, and a list of terms. Then
`motet._tracing.additions` adds them one by one into the same memory: a pull towards the anchor is
one `lerp`, and a product is added by the operation that computes it. The sum is the same up to
rounding; a pull of strength 0 and a gradient of 0 change no bit.

What can go wrong is the order. Adding terms in turn, and overwriting the base, means that some
values are read later than written, and others are gone. So every value that an update reads is
checked against what was overwritten before (`Reader.overwritten`), and a base is overwritten only
if nothing reads it afterwards (`is_read_up_to`), through any view.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import fx

from motet._tracing.nodes import (
    PRODUCTS,
    aten,
    is_by_rows,
    layout_of,
    number_of,
    owner,
    shape_of,
    shared,
)


class Term(NamedTuple):
    """`number * factors * tensor`: one term of an update."""

    tensor: fx.Node
    number: float = 1.0
    factors: tuple[fx.Node, ...] = ()  # small tensors: one number, or one per client

    def times(self, number: float, factors: tuple[fx.Node, ...] = ()) -> Term:
        return Term(self.tensor, self.number * number, (*self.factors, *factors))


class Update(NamedTuple):
    """`number * base` and terms to be added, everywhere or only where a mask is true."""

    base: fx.Node
    number: float
    pulls: list[Term]  # number * factors * (base - anchor)
    others: list[Term]
    products: list[Term]
    mask: fx.Node | None = None


@dataclass
class Reader:
    """Recognises updates, in the order of the graph.

    Attributes:
        overwritten: Values that earlier updates have overwritten; the caller adds to it.
    """

    overwritten: set[fx.Node] = field(default_factory=set)

    def replacement(self, old: fx.Node, new: fx.Node) -> Update | None:
        """Read a result as an update of the old value, which it may overwrite."""
        mask, stepped = where_masked(old, new)
        update = self._update(old, stepped)
        # With a mask, terms become 0 where nothing may change; but a factor on the base would still
        # change it there.
        if update is None or (mask is not None and update.number != 1):
            return None
        return update._replace(mask=mask) if is_read_up_to(new, old) else None

    def step(self, node: fx.Node) -> Update | None:
        """Read a node as `x - rate * gradient`, a step inside of a step."""
        base = node.args[0] if node.target is aten.sub.Tensor else None
        if not isinstance(base, fx.Node) or _scaled(node.args[1]) is None:
            return None
        if layout_of(base) != layout_of(node):
            return None  # a view of the result may rely on its strides
        update = self._update(base, node)
        # Products are computed contiguously, whatever the layout of the base.
        return None if update and update.products and not is_by_rows(base) else update

    def _update(self, base: fx.Node, node: Any) -> Update | None:
        """Read a node as the base, or a multiple of it, plus terms."""
        if not isinstance(node, fx.Node) or not _is_sum(node) or not _is_floating(base):
            return None
        left, right = parts(node)
        own = Term(base) if left is base else self._multiple(left, base)  # momentum
        if own is None or not self.is_there(right):
            return None
        # Taken apart as far as possible; if that cannot be added in turn, as a single term.
        for terms in (self._terms(right, base), self._whole(right)):
            update = Update(base, own.number, [], [], [])
            for term in terms:
                self._place(update, term).append(term.times(_sign(node)))
            if _can_be_added_in_turn(update):
                return update
        return None

    def _place(self, update: Update, term: Term) -> list[Term]:
        """Choose the list that a term belongs to, by the cheapest way to add it."""
        if self._is_pull(term, update.base):
            return update.pulls
        return update.products if self._folds(term, update.base) else update.others

    def _terms(self, node: Any, base: fx.Node) -> list[Term]:
        """Take a sum apart into terms.

        A node with another reader is computed anyway, so it is a term as it is. The parts of a sum
        are read later than the sum was, so they must not have been overwritten in between.
        """
        apart: list[Term] = []
        if len(node.users) > 1 or node.op != "call_function":
            return [Term(node)]
        if _is_sum(node):
            a, b = parts(node)
            if _sign(node) < 0 and a is base:
                # base - base is nothing; base - anchor is a pull, which stays whole
                return [] if b is base else [Term(node)]
            apart = [Term(a), Term(b, _sign(node))]
        elif (scaled := _scaled(node)) is not None:
            apart = [scaled]
        read = [part for term in apart for part in (term.tensor, *term.factors)]
        if not apart or not all(self.is_there(part) for part in read):
            return [Term(node)]
        return [
            inner.times(term.number, term.factors)
            for term in apart
            for inner in self._terms(term.tensor, base)
        ]

    def _whole(self, node: fx.Node) -> list[Term]:
        """Take only a factor off the whole."""
        scaled = _scaled(node)
        there = scaled is not None and all(map(self.is_there, (scaled.tensor, *scaled.factors)))
        return [scaled if scaled is not None and there else Term(node)]

    def _multiple(self, node: fx.Node, base: fx.Node) -> Term | None:
        """Read a node as a multiple of the base."""
        terms = self._terms(node, base)
        plain = len(terms) == 1 and terms[0].tensor is base and not terms[0].factors
        return terms[0] if plain else None

    def is_there(self, node: fx.Node) -> bool:
        """Tell whether a node can still be read here: its memory was not overwritten."""
        return owner(node) not in self.overwritten

    def _is_pull(self, term: Term, base: fx.Node) -> bool:
        """Tell whether a term is `base - anchor`, which `lerp` adds without computing it."""
        node = term.tensor
        if node.target is not aten.sub.Tensor or node.args[0] is not base or len(node.users) > 1:
            return False
        anchor: Any = node.args[1]
        return owner(anchor) is not base and self.is_there(anchor)

    def _folds(self, term: Term, base: fx.Node) -> bool:
        """Tell whether a term is a product that `addmm` or `baddbmm` can add as they compute it.

        Its factors are multiplied into the left matrix, so they have to be numbers, or one number
        per matrix. Neither matrix may be a view of the base, which is written meanwhile.
        """
        node = term.tensor
        if node.target not in PRODUCTS or len(node.users) > 1:
            return False
        per_client = 3 if node.target is aten.bmm.default else 0
        small = all(len(shape_of(factor)) in (0, per_client) for factor in term.factors)
        looked_into: Any = node.args
        apart = all(owner(f) is not base and self.is_there(f) for f in looked_into)
        return small and apart


def is_read_up_to(node: fx.Node, value: fx.Node) -> bool:
    """Tell whether nothing reads a value, or any view of it, after a node."""
    aliases = [value]
    for alias in aliases:  # the list grows while it is walked
        aliases += [user for user in alias.users if shared(user) is alias]
    return not any(node < user for alias in aliases for user in alias.users)


def where_masked(old: fx.Node, result: Any) -> tuple[fx.Node | None, Any]:
    """Take `where(mask, result, old)` apart; without a mask, return None and the result.

    Clients of a stack that have run out of batches stay as they are.
    """
    if isinstance(result, fx.Node) and result.target is aten.where.self:
        mask, stepped, otherwise = result.args
        if otherwise is old and isinstance(mask, fx.Node):
            return mask, stepped
    return None, result


def _can_be_added_in_turn(update: Update) -> bool:
    """Tell whether terms can be added one after another, each into the changed base.

    A pull, a term that is the base itself, and a factor on the base all need its old value. One of
    them can come first; two cannot.
    """
    everything = [*update.pulls, *update.others, *update.products]
    # Broadcasting and mixed precision work in a sum, but not in place.
    if any(_kind(term.tensor) != _kind(update.base) for term in everything):
        return False
    into_base = [term.tensor for term in update.others if owner(term.tensor) is update.base]
    if any(tensor is not update.base for tensor in into_base):  # a transposed base, for example
        return False
    return len(update.pulls) + len(into_base) + (update.number != 1) <= 1


def _is_sum(node: fx.Node) -> bool:
    """Tell whether a node adds or subtracts two tensors of its own size."""
    if node.target not in (aten.add.Tensor, aten.sub.Tensor) or node.kwargs:
        return False
    parts = node.args
    return all(isinstance(p, fx.Node) and shape_of(p) == shape_of(node) for p in parts)


def _is_floating(node: fx.Node) -> bool:
    return layout_of(node).dtype.is_floating_point


def _kind(node: fx.Node) -> tuple[tuple[int, ...], torch.dtype]:
    return shape_of(node), layout_of(node).dtype


def parts(node: fx.Node) -> tuple[fx.Node, fx.Node]:
    """Return the two operands of a sum or a difference."""
    left, right = node.args
    assert isinstance(left, fx.Node)
    assert isinstance(right, fx.Node)
    return left, right


def _sign(node: fx.Node) -> float:
    return -1.0 if node.target is aten.sub.Tensor else 1.0


def _scaled(node: Any) -> Term | None:
    """Read a node as a tensor times a number, or times a small tensor."""
    if not isinstance(node, fx.Node):
        return None
    if node.target is aten.neg.default:
        negated: Any = node.args[0]
        return Term(negated, -1.0)
    if node.target not in (aten.mul.Tensor, aten.mul.Scalar):
        return None
    for factor, tensor in (node.args, node.args[::-1]):
        if not isinstance(tensor, fx.Node) or shape_of(tensor) != shape_of(node):
            continue
        number = number_of(factor)
        if number is not None:
            return Term(tensor, number)
        small = _unexpanded(factor)
        if _is_small(small, node) and layout_of(small).dtype == layout_of(node).dtype:
            return Term(tensor, 1.0, (small,))
    return None


def _is_small(factor: fx.Node, whole: fx.Node) -> bool:
    """Tell whether a factor is one number, or one per client of a stack."""
    shape = shape_of(factor)
    return not shape or (len(shape) == len(shape_of(whole)) and all(n == 1 for n in shape[1:]))


def _unexpanded(node: Any) -> fx.Node:
    """Follow `expand` to the small tensor that it repeats."""
    while node.target is aten.expand.default:
        node = node.args[0]
    known: fx.Node = node
    return known
