"""Routing shares: how often a run takes the local route, by client, layer and class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from motet._core.criteria import WITH_CLASSES
from motet._engine.evaluation import Evaluation
from motet._engine.federation import Run
from motet._engine.scoring import with_examples
from motet.errors import CapabilityError, DataError

Column = Literal["client", "layer", "label"]


@runtime_checkable
class Router(Protocol):
    """A method whose predictor routes instances."""

    def routes(self, personal: Any, x: Tensor, task: Any) -> dict[str, Tensor]:
        """Return the route of each instance by layer: 1 is shared, 0 is local."""
        ...


class RouteShare(NamedTuple):
    """How often one client's instances of one class take the local route at one layer.

    Attributes:
        client: The client.
        layer: Name of the layer.
        label: The class; None for a regression.
        share: Share of the local route; in a recurrent layer, averaged over time steps.
        examples: Number of labels; for sequences, every position counts.

    Example:
        >>> row = RouteShare("basel", layer="body", label=3, share=0.25, examples=40)
        >>> f"{row.share:.0%} of {row.examples} examples take the local route"
        '25% of 40 examples take the local route'
    """

    client: str
    layer: str
    label: int | None
    share: float
    examples: int


@dataclass(frozen=True)
class RoutingShares:
    """A table of route shares.

    Attributes:
        split: The examples that were routed.
        rows: A share per client, layer and class.

    >>> rows = RouteShare("a", "head", 0, 1.0, 30), RouteShare("a", "head", 1, 0.0, 10)
    >>> table = RoutingShares("val", rows)
    >>> table.share, table.by("label")
    (0.75, {0: 1.0, 1: 0.0})
    """

    split: str
    rows: tuple[RouteShare, ...]

    @property
    def share(self) -> float:
        """Share of the local route, over all rows."""
        return _mean(self.rows)

    def by(self, column: Column) -> dict[Any, float]:
        """Return the share for each value of one column, weighted by examples.

        Args:
            column: "client", "layer" or "label".
        """
        values = dict.fromkeys(getattr(row, column) for row in self.rows)
        return {v: _mean([r for r in self.rows if getattr(r, column) == v]) for v in values}

    def __str__(self) -> str:
        title = f"local route on {self.split}: {self.share:.3f}"
        lines = [
            f"  by {column}: " + ", ".join(f"{name} {share:.3f}" for name, share in shares.items())
            for column, shares in (("layer", self.by("layer")), ("label", self.by("label")))
        ]
        return "\n".join([title, *lines])


def routing_shares(
    run: Run, split: str = "val", clients: Sequence[str] | None = None
) -> RoutingShares:
    """Count the routes of clients' own examples through their own predictors.

    Args:
        run: A run of a method that routes instances, on any backend.
        split: "train", "val" or "test".
        clients: Clients to include; None means all.

    Returns:
        The share of each route at each place of the network.

    Raises:
        CapabilityError: The method does not route instances.
        DataError: No client has examples in the split.

    Example:
        >>> import motet
        >>> world = motet.testing.ragged()
        >>> run = motet.run(motet.Flow(), world.task, world.data, rounds=0, backend="serial")
        >>> shares = routing_shares(run, "val", clients=["many"])
        >>> all(0 <= row.share <= 1 for row in shares.rows)
        True
    """
    setting = run.setting
    method, federation = setting.method, setting.federation
    if not isinstance(method, Router):
        raise CapabilityError(f"{method.name} does not route instances; use a run of flow.")
    rows: list[RouteShare] = []
    counted = with_examples(clients or federation.clients, lambda c: federation.size(c, split))
    for client in counted:
        x, y = federation.examples(client, split)
        routes = method.routes(run.personal(client), x, setting.task)
        labels = y if setting.task.criterion.kind in WITH_CLASSES else None
        rows += client_shares(client, routes, labels)
    if not rows:
        raise DataError(f'no client has examples in the split "{split}", so there are no routes.')
    return RoutingShares(split, tuple(rows))


def client_shares(
    client: str, routes: dict[str, Tensor], labels: Tensor | None
) -> Iterator[RouteShare]:
    """Turn one client's routes into rows.

    Args:
        client: The client.
        routes: By layer, [batch, steps], 1 where the shared route was taken.
        labels: [batch], or [batch, time] for sequences; None puts all instances in one row.
    """
    for layer, to_shared in routes.items():
        if labels is None:
            yield RouteShare(client, layer, None, float(1 - to_shared.mean()), len(to_shared))
            continue
        local = _per_label(1 - to_shared, labels)
        for label in sorted(set(labels.flatten().tolist())):
            chosen = local[labels == label]
            yield RouteShare(client, layer, int(label), float(chosen.mean()), len(chosen))


def share_harmed(personalized: Evaluation, generalised: Evaluation) -> float:
    """Return the share of clients that personalization does not help, as Flow's authors count it.

    Unlike `Evaluation.harmed`, this includes clients whose score does not change. `generalised` is
    the evaluation of the same run `after_broadcast`: the global model alone.

    Args:
        personalized: Scores of the personalized predictors.
        generalised: Scores of the global model at the same clients.

    Returns:
        A number from 0 to 1.

    Example:
        >>> import motet
        >>> world = motet.testing.ragged()
        >>> run = motet.run(motet.FedAvgFT(), world.task, world.data, rounds=0, backend="serial")
        >>> scores = run.evaluate("test")
        >>> share_harmed(scores, scores)  # nothing changed, so nobody was helped
        1.0
    """
    gains = personalized.gains(generalised)
    return sum(gain <= 0 for gain in gains.values()) / len(gains)


def _per_label(local: Tensor, labels: Tensor) -> Tensor:
    """Return the route for every label: that of its instance, or of its own time step."""
    if labels.ndim == 1:
        return local.mean(1)
    if local.shape == labels.shape:
        return local
    return local.mean(1, keepdim=True).expand(labels.shape)


def _mean(rows: Sequence[RouteShare]) -> float:
    return sum(r.share * r.examples for r in rows) / sum(r.examples for r in rows)
