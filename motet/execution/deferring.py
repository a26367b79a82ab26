"""Weights of a layer that sees the data themselves, left alone until the last step.

Plain gradient descent adds products to such weights: of what the layer saw in a step, X, and what
came back to it, D. After some steps they are W + D1'X1 + D2'X2 + ..., and all that the next step
needs of them is X3 W' + (X3 X1') D1 + (X3 X2') D2: the data's products with the first weights and
with each other, which are known beforehand. So large weights are read once and written once, in
two large products, instead of read twice and written once in every step. The sums are the same up
to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx

from motet.execution.nodes import (
    aten,
    is_by_rows,
    is_transposed,
    placeholders,
    results,
    root,
    shape_of,
)


class Layer(NamedTuple):
    """Weights that can wait."""

    place: int  # among a step's arguments, and among its results
    number: float  # before the products that are added
    shape: tuple[int, ...]  # [clients, outputs, inputs]

    def can_wait_for(self, rows: int) -> bool:
        """Tell whether it pays for so many rows of data: their products grow by the square."""
        return 2 * rows <= min(self.shape[1:])


@dataclass(frozen=True)
class Deferring:
    """A step that neither reads nor writes some layers' weights, nor the data.

    Its last arguments are what these layers put out; in place of new weights it returns what came
    back to the layers.
    """

    run: Callable[..., Sequence[Tensor]]
    layers: tuple[Layer, ...]


class Pending:
    """The weights of a layer for a stack of clients, and what has yet to be added to them."""

    def __init__(self, layer: Layer, weights: Tensor, seen: Tensor, width: int) -> None:
        """Take the weights as they are, and the data of all steps: [clients, rows, inputs]."""
        self._layer, self._weights, self._seen, self._width = layer, weights, seen, width
        # Of the first weights, which come first in the product: that is faster for few rows.
        self._outputs = torch.bmm(weights, seen.mT).mT
        self._alike = torch.bmm(seen, seen.mT)
        self._back = seen.new_empty(self._outputs.shape)

    def outputs(self, step: int) -> Tensor:
        """Compute what the layer puts out in a step, as if its weights were up to date."""
        now = self._rows(step)
        first, before = self._outputs[:, now], slice(now.start)
        return torch.baddbmm(first, self._alike[:, now, before], self._back[:, before])

    def note(self, step: int, back: Tensor) -> None:
        """Keep what came back to the layer in a step: [clients, outputs, width]."""
        torch.mul(back.mT, self._layer.number, out=self._back[:, self._rows(step)])

    def weights(self) -> Tensor:
        """Add everything at last; every step must have been noted."""
        return torch.baddbmm(self._weights, self._back.mT, self._seen)

    def _rows(self, step: int) -> slice:
        return slice(step * self._width, (step + 1) * self._width)


def deferring(program: fx.GraphModule, *, donated: int, data: int) -> Deferring | None:
    """Find the layers of a simplified step whose weights can wait; None if there are none.

    Args:
        program: A step, with its updates written in place. It is not changed.
        donated: The first so many arguments are replaced by the first results.
        data: The place of the data among the arguments.
    """
    program = deepcopy(program)
    graph = program.graph
    arguments, new = placeholders(graph), results(graph)
    x = arguments[data]
    found = [
        (place, weights, new[place])
        for place, weights in enumerate(arguments[:donated])
        if _can_wait(weights, new[place], x)
    ]
    layers = [Layer(place, _number(update), shape_of(w)) for place, w, update in found]
    for _, weights, update in found:
        _leave_out(graph, weights, update)
    graph.eliminate_dead_code()
    if not layers or x.users:
        return None
    graph.lint()
    program.recompile()
    return Deferring(program.forward, tuple(layers))


def _can_wait(weights: fx.Node, update: Any, x: fx.Node) -> bool:
    """Tell whether weights are only multiplied by the data, and only changed by such products."""
    if update.target is not aten.baddbmm_.default or update.args[0] is not weights:
        return False
    if not _sees_whole(update.args[2], x) or len(update.users) > 1:
        return False
    turned = [user for user in weights.users if user is not update]
    return all(is_transposed(t) for t in turned) and all(
        product.target is aten.bmm.default and _sees_whole(product.args[0], x)
        for t in turned
        for product in t.users
    )


def _sees_whole(node: Any, x: fx.Node) -> bool:
    """Tell whether a node is the data, each example as one row."""
    shape = shape_of(node)
    by_rows = is_by_rows(node) and is_by_rows(x)
    return root(node) is x and by_rows and len(shape) == 3 and shape[:2] == shape_of(x)[:2]


def _leave_out(graph: fx.Graph, weights: fx.Node, update: fx.Node) -> None:
    """Take a layer's outputs as an argument, and return what comes back to it."""
    with graph.inserting_after(placeholders(graph)[-1]):
        outputs = graph.placeholder(f"outputs_of_{weights.name}")
    for turned in list(weights.users):
        for product in list(turned.users) if turned is not update else ():
            product.replace_all_uses_with(outputs)
            graph.erase_node(product)
    back: Any = update.args[1]
    update.replace_all_uses_with(back)
    graph.erase_node(update)


def _number(update: fx.Node) -> float:
    number: Any = update.kwargs.get("alpha", 1.0)
    return float(number)
