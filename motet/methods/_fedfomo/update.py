"""FedFomo's federated update: a client judges the models it was sent, and mixes what helps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from motet._core import tree
from motet._core.tree import State
from motet._training.batching import Batches
from motet.methods._fedfomo.exchange import Client, Down
from motet.methods._fedfomo.mixing import (
    Distance,
    distance,
    first_order_weights,
    has_examples,
    leave_one_out_weights,
    loss_on_first,
    mix,
    rebuild,
    shares,
)
from motet.task import Task


class Update(NamedTuple):
    """The mixed model, and what each evaluated model weighed (w, which may be negative)."""

    model: State
    owners: Tensor
    weights: Tensor


@dataclass(frozen=True)
class Judge:
    """A client's target distribution, as far as its examples show it."""

    task: Task
    sources: Sequence[Batches]  # the first that has examples counts

    def loss(self, state: State) -> Tensor:
        """Compute the loss to be lowered."""
        return loss_on_first(self.task, state, self.sources)

    def losses(self, states: Sequence[State]) -> Tensor:
        """Compute it for several models."""
        return torch.stack([self.loss(state) for state in states])

    def distances(self, states: Sequence[State], origin: State, norm: Distance) -> Tensor:
        """Measure how far models are from `origin`: trained parameters count, statistics do not."""
        # Deviates: Distances ignore buffers.
        here = self.task.trainable(origin)
        return torch.stack([distance(self.task.trainable(s), here, norm) for s in states])

    def can_judge(self) -> Tensor:
        """Tell whether there is any example."""
        return torch.stack([has_examples(source) for source in self.sources]).any()


def update_by_candidates(
    down: Down, client: Client, judge: Judge, norm: Distance, *, revert: bool
) -> Update:
    """Weigh each model, the client's own first, against the client's previous one (Eq. 3)."""
    models = [client.current, *down.slots]
    weights = first_order_weights(
        judge.loss(client.previous),
        judge.losses(models),
        judge.distances(models, client.previous, norm),
    )
    valid = torch.cat([torch.ones_like(down.own, dtype=torch.bool), down.valid])
    weights = torch.where(valid, weights, 0.0)
    # Without an example every weight is 0; then a client goes on from its own model, or it would
    # throw away every local training.
    stay = client.previous if revert else client.current
    stay = tree.where(judge.can_judge(), stay, client.current)
    owners = torch.cat([down.own, down.owners])
    return Update(mix(models, shares(weights), otherwise=stay), owners, weights)


def update_by_leaving_out(down: Down, client: Client, judge: Judge, *, revert: bool) -> Update:
    """Weigh each model by what the plain average loses without it (Eq. 14)."""
    average, models = rebuild(down.slots, down.valid)
    loss = judge.loss(average)
    weights = torch.where(down.valid, leave_one_out_weights(loss, judge.losses(down.slots)), 0.0)
    judged = judge.can_judge() & down.valid.any() & torch.isfinite(loss)
    # Deviates: leave_one_out falls back to the plain average.
    stay = tree.where(judged, average if revert else client.current, client.current)
    return Update(mix(models, shares(weights), otherwise=stay), down.owners, weights)
