"""Exact nearest neighbours, their vote, and its mix with a model's prediction, as pure functions.

Stores may be padded: a key that is not real is infinitely far away. Nothing here depends on the
order of the keys (docs/decisions/0010-exact-search-in-torch.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.linalg import vector_norm

from motet._core.transforms import is_exporting
from motet.errors import RequestError

Kernel = Literal["laplace", "gauss_dim"]
KERNELS = ("laplace", "gauss_dim")
BLOCK = 128  # queries at a time: bounds the [queries, keys] matrix
ROUNDING = 1e-12  # of |a|^2 + |b|^2: a squared distance below it is rounding
TINY = 1e-30


class Datastore(NamedTuple):
    """What a client remembers: representations of its own examples, with their labels."""

    keys: Tensor  # [keys, features]
    labels: Tensor  # [keys]
    real: Tensor  # [keys], False for padding

    def first(self, count: int) -> Datastore:
        """Keep the first keys."""
        return Datastore(self.keys[:count], self.labels[:count], self.real[:count])


def squared_distances(queries: Tensor, keys: Tensor) -> Tensor:
    """Compute squared Euclidean distances, [queries, keys].

    By inner products, many times faster than by differences, and in double precision, where their
    cancellation is below what single precision can tell apart. So equal distances come out equal.
    """
    a, b = queries.double(), keys.double()
    norms = vector_norm(a, dim=-1, keepdim=True).square() + vector_norm(b, dim=-1).square()
    squared = norms - 2 * a @ b.mT
    exact = torch.where(squared > ROUNDING * norms, squared, 0.0)
    return exact.to(torch.promote_types(queries.dtype, keys.dtype))


def distances_to(store: Datastore, queries: Tensor) -> Tensor:
    """Compute squared distances to the keys of a store, infinite for padding."""
    return torch.where(store.real, squared_distances(queries, store.keys), math.inf)


def nearest_share(squared: Tensor, k: int) -> Tensor:
    """Say how much of each key is among the k nearest.

    1 if it is nearer than the k-th; keys at the very distance of the k-th share the places that are
    left, so that no order of the keys decides among them.
    """
    if k >= squared.shape[-1]:
        # Deviates: A store smaller than k uses all its keys.
        return torch.ones_like(squared)
    farthest = squared.topk(k, largest=False).values[..., -1:]
    nearer, level = squared < farthest, squared == farthest
    places = k - nearer.sum(-1, keepdim=True)
    # Deviates: Keys at the distance of the k-th neighbour share the places that are left.
    return torch.where(nearer, 1.0, level * places / level.sum(-1, keepdim=True))


def blocks(rows: Tensor, size: int) -> tuple[Tensor, ...]:
    """Split rows, so that memory is bounded; a graph for any number of rows cannot count them."""
    return (rows,) if is_exporting() else torch.split(rows, size)


@dataclass(frozen=True, kw_only=True)
class NearestVote:
    """The labels of the k nearest keys, weighted by a kernel of the distance d.

    Attributes:
        k: Neighbours; a store with fewer keys uses them all.
        kernel: "laplace" weighs by exp(-d / scale), "gauss_dim" by exp(-d^2 / (features * scale)).
        scale: Large approaches a plain vote of the k, small the label of the nearest key.
    """

    k: int = 10
    kernel: Kernel = "laplace"
    scale: float = 1.0

    def __post_init__(self) -> None:
        if self.k < 1:
            raise RequestError(f"k= must be 1 or more; got {self.k}.", option="k")
        if self.kernel not in KERNELS:
            raise RequestError(f"kernel= is one of {', '.join(KERNELS)}; got {self.kernel!r}.")
        if not self.scale > 0:
            raise RequestError(f"scale= must be above 0; got {self.scale}.", option="scale")

    def exponent(self, squared: Tensor, features: int) -> Tensor:
        """Return e where the kernel is exp(-e)."""
        if self.kernel == "laplace":
            return squared.sqrt() / self.scale
        return squared / (features * self.scale)

    def count(self, squared: Tensor, store: Datastore, classes: int) -> Tensor:
        """Count the vote, [queries, classes]: rows sum to 1, or to 0 where there is no key."""
        if not squared.shape[-1]:
            return squared.new_zeros(squared.shape[0], classes)
        exponent = self.exponent(squared, store.keys.shape[-1])
        nearest = exponent.amin(-1, keepdim=True)
        # The nearest key gets the weight 1: a common factor cancels, and far keys do not all
        # underflow to 0.
        # Deviates: All distances are shifted by the smallest before exp.
        shift = torch.where(nearest.isfinite(), nearest, 0.0)
        weight = nearest_share(squared, self.k) * torch.exp(shift - exponent)
        ballots = store.labels[:, None] == torch.arange(classes)  # [keys, classes]
        return weight @ ballots.to(weight.dtype) / weight.sum(-1, keepdim=True).clamp(min=TINY)

    def ask(self, store: Datastore, queries: Tensor, classes: int) -> Tensor:
        """Let a store vote on queries."""
        parts = blocks(queries, BLOCK)
        return torch.cat([self.count(distances_to(store, q), store, classes) for q in parts])

    def ask_each_other(self, store: Datastore, classes: int) -> Tensor:
        """Let a store vote on its own keys, each left out of the vote on itself."""
        rows = torch.arange(store.real.shape[0])
        parts = []
        for some in torch.split(rows, BLOCK):
            itself = some[:, None] == rows
            squared = distances_to(store, store.keys[some])
            parts.append(self.count(torch.where(itself, math.inf, squared), store, classes))
        return torch.cat(parts)


def mix(model: Tensor, neighbours: Tensor, lam: Tensor | float) -> Tensor:
    """Compute lam * neighbours + (1 - lam) * model; without a vote it is the model alone."""
    lam = torch.where(neighbours.any(-1, keepdim=True), lam, 0.0)
    return lam * neighbours + (1 - lam) * model


def correct_by_lambda(model: Tensor, neighbours: Tensor, labels: Tensor, grid: Tensor) -> Tensor:
    """Tell which examples each lambda of a grid gets right, [grid, examples]."""
    mixed = mix(model, neighbours, grid[:, None, None])  # [grid, examples, classes]
    return mixed.argmax(-1) == labels


def best_lambda(correct: Tensor, real: Tensor, grid: Tensor) -> Tensor:
    """Choose the lambda that gets most of the real examples right; ties go to the smallest."""
    hits = (correct & real).sum(-1)
    return grid.gather(0, hits.argmax(keepdim=True))[0]  # argmax returns the first of the largest
