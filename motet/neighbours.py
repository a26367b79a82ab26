"""Exact nearest neighbours, their vote, and its mix with a model's prediction, as pure functions.

Stores may be padded: a key that is not real is infinitely far away. Nothing here depends on the
order of the keys (docs/decisions/0010-exact-search-in-torch.md).
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

Kernel = Literal["laplace", "gauss_dim"]
KERNELS: tuple[Kernel, ...] = ("laplace", "gauss_dim")
ROUNDING = 1e-12  # of |a|^2 + |b|^2: squared distances below it are rounding, not distance
TINY = 1e-30


class Datastore(NamedTuple):
    """What a client remembers: representations of its own examples, with their labels."""

    keys: Tensor  # [keys, features]
    labels: Tensor  # [keys]
    real: Tensor  # [keys], False for padding

    def take(self, rows: slice) -> Datastore:
        """Keep some of the keys."""
        return Datastore(self.keys[rows], self.labels[rows], self.real[rows])


def squared_distances(queries: Tensor, keys: Tensor) -> Tensor:
    """Compute squared Euclidean distances, [queries, keys].

    By inner products, 10 times faster than by differences, and in double precision, where their
    cancellation is below what single precision can tell apart. So equal distances come out equal.
    """
    a, b = queries.double(), keys.double()
    norms = a.square().sum(-1, keepdim=True) + b.square().sum(-1)
    squared = norms - 2 * a @ b.mT
    return torch.where(squared > ROUNDING * norms, squared, 0.0).float()


def distances_to(store: Datastore, queries: Tensor) -> Tensor:
    """Compute squared distances to a store, infinite for padding."""
    return torch.where(store.real, squared_distances(queries, store.keys), math.inf)


def distances_within(store: Datastore) -> Tensor:
    """Compute squared distances inside a store; nobody is their own neighbour."""
    myself = torch.eye(store.real.shape[0], dtype=torch.bool)
    return torch.where(myself, math.inf, distances_to(store, store.keys))


def nearest_share(squared: Tensor, k: int) -> Tensor:
    """Say how much of each key is among the k nearest.

    1 if it is nearer than the k-th; keys at the very distance of the k-th share the places that are
    left, so that no order of the keys decides among them.
    """
    if k >= squared.shape[-1]:
        return torch.ones_like(squared)
    farthest = squared.topk(k, largest=False).values[..., -1:]
    nearer, level = squared < farthest, squared == farthest
    places = k - nearer.sum(-1, keepdim=True)
    return torch.where(nearer, 1.0, level * places / level.sum(-1, keepdim=True))


def kernel_exponent(squared: Tensor, kernel: Kernel, scale: float, features: int) -> Tensor:
    """Compute e where the kernel is exp(-e): d / scale, or d^2 / (features * scale)."""
    return squared.sqrt() / scale if kernel == "laplace" else squared / (features * scale)


def vote(squared: Tensor, labels: Tensor, classes: int, *, k: int, exponent: Tensor) -> Tensor:
    """Let the k nearest keys vote with weights exp(-exponent), [queries, classes].

    Each row sums to 1, or is 0 where there is no key at all.
    """
    nearest = exponent.amin(-1, keepdim=True) if squared.shape[-1] else torch.zeros(())
    # The nearest key gets the weight 1: a common factor cancels, and exp(-e) of far keys does not
    # underflow to 0 / 0.
    shift = torch.where(nearest.isfinite(), nearest, 0.0)
    weight = nearest_share(squared, k) * torch.exp(shift - exponent)
    ballots = (labels[:, None] == torch.arange(classes)).to(weight.dtype)  # [keys, classes]
    return weight @ ballots / weight.sum(-1, keepdim=True).clamp(min=TINY)


def mix(model: Tensor, neighbours: Tensor, lam: Tensor | float) -> Tensor:
    """Compute lam * neighbours + (1 - lam) * model; where nobody votes the model speaks alone."""
    lam = torch.where(neighbours.any(-1, keepdim=True), lam, 0.0)
    return lam * neighbours + (1 - lam) * model


def correct_by_lambda(model: Tensor, neighbours: Tensor, labels: Tensor, grid: Tensor) -> Tensor:
    """Tell which examples each lambda of the grid gets right, [grid, examples]."""
    mixed = mix(model, neighbours, grid[:, None, None])  # [grid, examples, classes]
    return mixed.argmax(-1) == labels


def best_lambda(correct: Tensor, real: Tensor, grid: Tensor) -> Tensor:
    """Choose the lambda that gets most real examples right; ties go to the smallest."""
    hits = (correct & real).sum(-1)
    return grid.gather(0, hits.argmax(keepdim=True))[0]  # argmax returns the first of the largest
