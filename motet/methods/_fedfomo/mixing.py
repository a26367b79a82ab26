"""One model out of several, by how much each of them lowers a loss (FedFomo, Eq. 3, 13 and 14)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.linalg import vector_norm

from motet._core.tree import State, check_names, tree_map
from motet._training.batching import Batches
from motet._training.fitting import mean_loss
from motet.task import Task

Distance = Literal["l2", "l1", "l2sq"]
DISTANCES = ("l2", "l1", "l2sq")


def distance(a: State, b: State, norm: Distance) -> Tensor:
    """Measure how far apart two models are.

    Subtracted first, summed after, in double precision: ||a||^2 + ||b||^2 - 2ab in single precision
    is 0 for large models that differ by 0.1.
    """
    check_names(a, b)
    order = 1 if norm == "l1" else 2
    gaps = [vector_norm(a[name] - b[name], order, dtype=torch.float64) for name in a]
    whole: Tensor = vector_norm(torch.stack(gaps), order)
    return whole.square() if norm == "l2sq" else whole


def first_order_weights(baseline: Tensor, losses: Tensor, distances: Tensor) -> Tensor:
    """Weigh candidates by gain per distance, Eq. 3: w_n = (L(baseline) - L(n)) / ||n - baseline||.

    A candidate that is the baseline itself (0 / 0), or whose loss or distance is not finite, weighs
    0.
    """
    # Deviates: A candidate at distance 0, or with a loss that is not finite, weighs 0.
    return _finite((baseline.double() - losses.double()) / distances)


def leave_one_out_weights(whole: Tensor, without: Tensor) -> Tensor:
    """Weigh models by what the plain average loses without them, Eq. 14."""
    return _finite(without.double() - whole.double())


def shares(weights: Tensor) -> Tensor:
    """Keep what helps and normalise, Eq. 13: the shares sum to 1, or to 0 where nothing helps.

    >>> shares(torch.tensor([3.0, -5.0, 1.0]))
    tensor([0.7500, 0.0000, 0.2500])
    """
    positive = weights.clamp(min=0)
    total = positive.sum()
    return torch.where(total > 0, positive / total, torch.zeros_like(positive))


def mix(models: Sequence[State], parts: Tensor, otherwise: State) -> State:
    """Sum the models by their shares; where all shares are 0, return `otherwise`.

    Counters and other integers cannot be averaged: they come from the model of the largest share.
    """

    def blend(fallback: Tensor, *leaves: Tensor) -> Tensor:
        join = _weighted_sum if fallback.is_floating_point() else _of_largest
        return torch.where(parts.sum() > 0, join(leaves, parts), fallback)

    return tree_map(blend, otherwise, *models)


def rebuild(without: Sequence[State], valid: Tensor) -> tuple[State, list[State]]:
    """Recover the plain average, and each model, from averages that leave one model out.

    With N models, the average of the averages is the plain one, and model n is
    `N * plain - (N - 1) * without[n]`. Integers stay unchanged.
    """
    number = valid.sum()

    def plain(*leaves: Tensor) -> Tensor:
        if not leaves[0].is_floating_point():
            return torch.stack(leaves).amax(0)
        return _weighted_sum(leaves, valid.double()) / number.clamp(min=1)

    def left_out(average: Tensor, partial: Tensor) -> Tensor:
        if not partial.is_floating_point():
            return partial
        return number * average - (number - 1) * partial

    whole = tree_map(plain, without[0], *without[1:])
    return whole, [tree_map(left_out, whole, one) for one in without]


def has_examples(batches: Batches) -> Tensor:
    """Tell whether a phase holds any real example."""
    return batches.weight.sum() > 0


def loss_on_first(task: Task, state: State, sources: Sequence[Batches]) -> Tensor:
    """Compute the mean loss on the first source that has examples; 0 if none has."""
    loss = torch.zeros(())
    for batches in reversed(sources):
        loss = torch.where(has_examples(batches), mean_loss(task, state, batches), loss)
    return loss


def _finite(weights: Tensor) -> Tensor:
    return torch.where(torch.isfinite(weights), weights, torch.zeros_like(weights))


def _weighted_sum(leaves: Sequence[Tensor], parts: Tensor) -> Tensor:
    total = torch.zeros(())
    for number, leaf in enumerate(leaves):  # one copy at a time: there may be many models
        part = parts[number].to(leaf.dtype)
        # A model without a share may hold NaN, and 0 * NaN is NaN: leave it out by `where`.
        counted = torch.where(part > 0, leaf, torch.zeros_like(part))
        total = torch.addcmul(total, part, counted) if number else part * counted
    return total


def _of_largest(leaves: Sequence[Tensor], parts: Tensor) -> Tensor:
    chosen, largest = leaves[0], parts[0]
    for leaf, part in zip(leaves[1:], parts[1:].unbind(), strict=True):
        chosen = torch.where(part > largest, leaf, chosen)
        largest = torch.maximum(part, largest)
    return chosen
