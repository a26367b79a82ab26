"""Aggregation: the weighted mean of uploads, or all of them side by side.

A reduction is a monoid: `lift` makes a partial result from some clients, `merge` joins two,
`finish` reads the result. So workers may pre-reduce, and partial results are merged in a fixed
order, whichever worker finishes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from motet._core import tree

Weights = Literal["examples", "uniform", "batches"]


class Reduce(Protocol):
    """What every reduction can do."""

    needs_single_uploads: bool

    @property
    def weights(self) -> Weights:
        """How clients count: by training examples, equally, or by number of batches."""
        ...

    def lift(self, clients: Sequence[str], uploads: Any, weights: Tensor) -> Any:
        """Make a partial result from the uploads of some clients.

        Args:
            clients: Ids of the clients.
            uploads: Uploads, stacked: one row per client.
            weights: Weight of each client.
        """
        ...

    def merge(self, a: Any, b: Any) -> Any:
        """Join two partial results.

        Args:
            a: A partial result.
            b: Another one.
        """
        ...

    def finish(self, partial: Any, down: Any = None) -> Any:
        """Return the result that `Method.server_update` gets.

        Args:
            partial: The result of `lift` or `merge`.
            down: What the clients were sent.
        """
        ...


class Total(NamedTuple):
    """A weighted sum of uploads; integers (counters) keep their maximum instead."""

    value: Any
    weight: float
    kinds: Any  # one empty tensor per leaf: remembers the leaf's type


@dataclass(frozen=True, kw_only=True)
class Mean:
    """The weighted mean over the cohort; integers keep the largest.

    A stack of clients becomes one mean in the precision of the uploads, by one product; the means
    of stacks are summed in double precision, so that a large cohort loses nothing.

    Attributes:
        weights: How clients count: by training "examples", "uniform", or by number of "batches".

    Example:
        >>> import torch
        >>> uploads = {"w": torch.tensor([[1.0], [4.0]])}  # [clients, ...]
        >>> mean = Mean()
        >>> mean.finish(mean.lift(["a", "b"], uploads, torch.tensor([20.0, 10.0])))
        {'w': tensor([2.])}
    """

    weights: Weights = "examples"
    needs_single_uploads = False

    def lift(self, clients: Sequence[str], uploads: Any, weights: Tensor) -> Total:
        """Make a partial result from the uploads of some clients.

        Args:
            clients: Ids of the clients.
            uploads: Uploads, stacked: one row per client.
            weights: Weight of each client.
        """

        def weigh(leaf: Tensor) -> Tensor:
            if not leaf.is_floating_point():
                return leaf.amax(0)
            rows = leaf.to(torch.promote_types(leaf.dtype, torch.float32)).reshape(len(leaf), -1)
            mean = shares.to(rows.dtype) @ rows  # shares, not weights: a sum might overflow
            return mean.double().mul_(total).view(leaf.shape[1:])

        total = float(weights.sum())
        shares = weights.double() / (total or 1.0)
        kinds = tree.tree_map(lambda leaf: leaf.new_empty(0), uploads)
        return Total(tree.tree_map(weigh, uploads), total, kinds)

    def merge(self, a: Total, b: Total) -> Total:
        """Join two partial results.

        Args:
            a: A partial result.
            b: Another one.
        """

        def join(x: Tensor, y: Tensor) -> Tensor:
            return x + y if x.is_floating_point() else torch.maximum(x, y)

        return Total(tree.tree_map(join, a.value, b.value), a.weight + b.weight, a.kinds)

    def finish(self, partial: Total, down: Any = None) -> Any:
        """Return the result that `Method.server_update` gets.

        Args:
            partial: The result of `lift` or `merge`.
            down: What the clients were sent.
        """

        def divide(leaf: Tensor, kind: Tensor) -> Tensor:
            return (leaf / partial.weight).to(kind.dtype) if kind.is_floating_point() else leaf

        return tree.tree_map(divide, partial.value, partial.kinds)


@dataclass(frozen=True, kw_only=True)
class Gather:
    """Every upload by itself, by client: for servers that compare clients.

    Attributes:
        weights: How clients count, for servers that ask.

    Example:
        >>> import torch
        >>> gather = Gather()
        >>> uploads = {"w": torch.tensor([[2.0], [1.0]])}  # [clients, ...]
        >>> gather.finish(gather.lift(["b", "a"], uploads, torch.ones(2)))
        {'a': {'w': tensor([1.])}, 'b': {'w': tensor([2.])}}
    """

    weights: Weights = "uniform"
    needs_single_uploads = True

    def lift(self, clients: Sequence[str], uploads: Any, weights: Tensor) -> dict[str, Any]:
        """Make a partial result from the uploads of some clients.

        Args:
            clients: Ids of the clients.
            uploads: Uploads, stacked: one row per client.
            weights: Weight of each client.
        """
        if len(clients) == 1:
            return {clients[0]: tree.tree_map(lambda leaf: leaf[0], uploads)}  # no copy
        return {client: tree.row(uploads, i) for i, client in enumerate(clients)}

    def merge(self, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        """Join two partial results.

        Args:
            a: A partial result.
            b: Another one.
        """
        return a | b

    def finish(self, partial: dict[str, Any], down: Any = None) -> dict[str, Any]:
        """Return the result that `Method.server_update` gets.

        Args:
            partial: The result of `lift` or `merge`.
            down: What the clients were sent.
        """
        return {client: partial[client] for client in sorted(partial)}
