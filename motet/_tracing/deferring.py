"""The pass that finds layers whose weights can wait for the last step (`motet._tracing.pending`).

Weights can wait if a step does two things with them and nothing else: multiply the data by them,
and add a product of the data to them. Momentum, weight decay, a pull towards another model, a
second use of the weights or a use of their new value: then a step needs the weights themselves, and
they stay in it.
"""

from __future__ import annotations

from typing import Any

from torch import fx

from motet._core.frozen import copied
from motet._tracing.nodes import (
    aten,
    is_by_rows,
    is_transposed,
    placeholders,
    results,
    root,
    shape_of,
)
from motet._tracing.pending import Deferring, Layer
from motet._tracing.scripts import scripted


def deferring(program: fx.GraphModule, *, donated: int, data: int) -> Deferring | None:
    """Find the layers of a simplified step whose weights can wait; None if there are none.

    Args:
        program: A step, with its updates written in place. It is not changed.
        donated: How many of the first arguments are replaced by the first results.
        data: The position of the data among the arguments.
    """
    program = copied(program)
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
    # The caller has the data of all steps at once and does not gather a batch for each step. So if
    # anything but a waiting layer reads them, the step has to stay as it is.
    if not layers or x.users:
        return None
    graph.lint()
    program.recompile()
    return Deferring(scripted(program), tuple(layers))


def _can_wait(weights: fx.Node, update: Any, x: fx.Node) -> bool:
    """Tell whether weights are only multiplied by the data, and only changed by such products.

    Args:
        weights: An argument of the step.
        update: The result that replaces it.
        x: The data.
    """
    if update.target is not aten.baddbmm_.default or update.args[0] is not weights:
        return False
    # More than one user: something besides the results reads the new weights.
    if not _sees_whole(update.args[2], x) or len(update.users) > 1:
        return False
    turned = [user for user in weights.users if user is not update]
    return all(is_transposed(t) for t in turned) and all(
        product.target is aten.bmm.default and _sees_whole(product.args[0], x)
        for t in turned
        for product in t.users
    )


def _sees_whole(node: Any, x: fx.Node) -> bool:
    """Tell whether a node is all of the data, each example as one row."""
    shape = shape_of(node)
    # Contiguous views of contiguous data have the same numbers in the same order.
    by_rows = is_by_rows(node) and is_by_rows(x)
    return root(node) is x and by_rows and len(shape) == 3 and shape[:2] == shape_of(x)[:2]


def _leave_out(graph: fx.Graph, weights: fx.Node, update: fx.Node) -> None:
    """Make the outputs of a layer an argument, and return their gradient instead of new weights."""
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
