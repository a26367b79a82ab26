"""A datastore compressed to learned prototypes, as in ProtoNN.

Gupta et al., "ProtoNN: Compressed and Accurate kNN for Resource-scarce Devices", ICML 2017.
https://proceedings.mlr.press/v70/gupta17a.html
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from motet._core.neighbours import BLOCK, TINY, Datastore, squared_distances
from motet._core.tree import State
from motet._training.batching import Batches
from motet._training.fitting import fit
from motet.optim import Optimizer
from motet.task import Batch, Loss, Task

LLOYD_STEPS = 5
ONE_HOT = 5.0  # first score of a prototype's own label, before softmax: about 0.94 of 10 classes
NEVER = -1e30  # like -inf, but softmax of nothing else is no NaN


class Prototypes(NamedTuple):
    """A small weighted store: every prototype has a place b, a mix of labels z, and all one gamma.

    The prediction is sum_j z_j exp(-gamma |x - b_j|^2) / sum_j exp(-gamma |x - b_j|^2).
    """

    keys: Tensor  # b: [prototypes, features]
    values: Tensor  # z: [prototypes, classes], rows on the simplex
    real: Tensor  # [prototypes]
    gamma: Tensor


class Layout(NamedTuple):
    """Where prototypes start: a centroid of some examples of one class each."""

    keys: Tensor
    labels: Tensor
    real: Tensor


def compress(
    store: Datastore, factor: int, classes: int, *, task: Task, optimizer: Optimizer, steps: int
) -> Prototypes:
    """Replace c keys by ceil(c / factor) prototypes, fitted to the store's own labels.

    They start as centroids of a k-means inside each class, with nearly one-hot labels, and take
    `steps` full-batch steps on the cross-entropy of their prediction.
    """
    start = centroids(store, factor)
    unit, centre = _spread(store, start), _mean(store.keys, store.real)
    scaled = store._replace(keys=(store.keys - centre) / unit)
    params = {
        "prototype_keys": (start.keys - centre) / unit,
        "prototype_scores": ONE_HOT
        * (start.labels[:, None] == torch.arange(classes)).to(start.keys.dtype),
        "prototype_log_gamma": torch.zeros((), dtype=start.keys.dtype),
    }
    walk = _full_batches(scaled, steps)
    trained = fit(task, params, walk, optimizer, loss=_objective, given=(start.real,))
    gamma = _gamma(trained, start.real) / unit**2
    keys = centre + unit * trained["prototype_keys"]
    return Prototypes(keys, trained["prototype_scores"].softmax(-1), start.real, gamma)


def ask_prototypes(prototypes: Prototypes, queries: Tensor) -> Tensor:
    """Predict class probabilities, [queries, classes]; rows are 0 if no prototype is real."""

    def ask(some: Tensor) -> Tensor:
        exponent = prototypes.gamma * squared_distances(some, prototypes.keys)
        weight = torch.where(prototypes.real, -exponent, NEVER).softmax(-1)
        return (weight * prototypes.real) @ prototypes.values

    return torch.cat([ask(some) for some in torch.split(queries, BLOCK)])


def centroids(store: Datastore, factor: int) -> Layout:
    """Run k-means inside each class; every class has a prototype, as far as they go round."""
    start = _spread_over_classes(store, factor)
    for _ in range(LLOYD_STEPS):
        start = start._replace(keys=_lloyd_step(store, start))
    return start


def _spread_over_classes(store: Datastore, factor: int) -> Layout:
    """Start at examples of each class, evenly spread over those that the class has."""
    places, real = _shared_out(store, factor)
    return Layout(store.keys[places], store.labels[places], real)


def _shared_out(store: Datastore, factor: int) -> tuple[Tensor, Tensor]:
    """Choose the examples where prototypes start, by place in the store, and say which are real.

    Every class has one first, the largest class before the others; the rest are shared out in
    proportion to the examples, by the divisors 1, 3, 5, ... of Sainte-Lague, which never give a
    class more prototypes than it has examples.
    """
    most = store.real.shape[0]
    last = store.labels.max() + 1
    labels, order = torch.where(store.real, store.labels, last).sort(stable=True)
    here = torch.arange(most)
    first, end = _runs(labels)
    examples, rank = end - first, here - first
    size = store.real.sum()
    quotient = examples.double() / (2 * rank + 1)
    claim = torch.where(rank == 0, size + quotient, quotient)
    claim = torch.where(here < size, claim, -1.0)  # padding claims nothing
    wanted = (size + factor - 1) // factor
    # The ranks of a stable descending sort: of equal claims, the first class has its way.
    served = claim.argsort(descending=True, stable=True).argsort() < wanted
    before = served.cumsum(0) - served.long()
    shared = before[end - 1] + served[end - 1].long() - before[first]  # prototypes of the class
    spread = first + (2 * rank + 1) * examples // (2 * shared.clamp(min=1))
    slots = torch.where(served, here, most).sort().values[: -(-most // factor)]
    return order[spread.clamp(max=most - 1)[slots.clamp(max=most - 1)]], slots < most


def _runs(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Say for each of some sorted labels where the run of its equals begins and ends."""
    here, edge = torch.arange(labels.shape[0]), torch.ones_like(labels[:1], dtype=torch.bool)
    changes = labels[1:] != labels[:-1]
    first = torch.where(torch.cat([edge, changes]), here, 0).cummax(0).values
    end = torch.where(torch.cat([changes, edge]), here + 1, labels.shape[0])
    return first, end.flip(0).cummin(0).values.flip(0)


def _owned(store: Datastore, layout: Layout) -> Tensor:
    """Give each example to the nearest prototype of its class, if any, [keys, prototypes]."""
    allowed = (store.labels[:, None] == layout.labels) & layout.real & store.real[:, None]
    squared = squared_distances(store.keys, layout.keys)
    owner = torch.where(allowed, squared, torch.inf).argmin(-1)
    mine = (owner[:, None] == torch.arange(layout.real.shape[0])) & allowed
    return mine.to(store.keys.dtype)


def _lloyd_step(store: Datastore, layout: Layout) -> Tensor:
    """Move each prototype to the mean of the examples that it owns."""
    owned = _owned(store, layout)
    total = owned.sum(0)[:, None]
    return torch.where(total > 0, owned.mT @ store.keys / total.clamp(min=1), layout.keys)


def _spread(store: Datastore, layout: Layout) -> Tensor:
    """Measure how far an example is from its prototype: the unit of length, where gamma is 1.

    At least a tenth of how far it is from the mean: prototypes of one example each have no spread.
    """
    owned, real = _owned(store, layout), store.real.to(store.keys.dtype)
    within = (owned * squared_distances(store.keys, layout.keys)).sum() / owned.sum().clamp(min=1)
    away = (store.keys - _mean(store.keys, store.real)).square().sum(-1)
    overall = (away * real).sum() / real.sum().clamp(min=1)
    return torch.maximum(within, overall / 100).sqrt().clamp(min=1e-6)


def _objective(state: State, batch: Batch, real: Tensor) -> Loss:
    keys, gamma = state["prototype_keys"], _gamma(state, real)
    # Without |x|^2, which is the same for all prototypes and so cancels.
    nearness = 2 * batch.x @ keys.mT - keys.square().sum(-1)
    weight = torch.where(real, gamma * nearness, NEVER).softmax(-1)
    predicted = weight @ state["prototype_scores"].softmax(-1)
    right = predicted.gather(-1, batch.y[:, None].long())[:, 0].clamp(min=TINY)
    mean = -(right.log() * batch.weight).sum() / batch.weight.sum().clamp(min=1)
    # The gradient of one prototype shrinks with their number; scaled by it, steps have the same
    # length for many prototypes as for few.
    return Loss(mean * real.sum(), {})


def _gamma(state: State, real: Tensor) -> Tensor:
    # All prototypes pull at it; divided by the root of their number, its step is as long as theirs.
    return (state["prototype_log_gamma"] / real.sum().clamp(min=1).sqrt()).exp()


def _full_batches(store: Datastore, steps: int) -> Batches:
    """Walk the whole store in every step."""
    # Made from the store's own tensors, so that under vmap they are stacked as the store is.
    weight = store.real.to(store.keys.dtype)
    rows = store.labels.long() * 0 + torch.arange(store.real.shape[0])
    return Batches(
        x=store.keys,
        y=store.labels,
        size=store.real.sum(),
        rows=rows.expand(steps, -1),
        weight=weight.expand(steps, -1),
        key=torch.zeros(steps, dtype=torch.int64) + store.real.sum(),
        rate=torch.ones((), dtype=torch.float64),
    )


def _mean(keys: Tensor, real: Tensor) -> Tensor:
    weight = real.to(keys.dtype)
    return weight @ keys / weight.sum().clamp(min=1)
