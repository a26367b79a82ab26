"""A bank of K models: what IFCA and FedEM share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from motet._core import tree
from motet._core.aggregation.mean import Weights
from motet._core.keys import Key
from motet._core.tree import State
from motet.task import Task


def draw_bank(task: Task, initial: State, models: int, key: Key) -> State:
    """Stack K models, the common start first; they must differ, or they would stay equal."""
    # Deviates: Models start from independent draws.
    others = [task.init(key.fold("model", number)) for number in range(1, models)]
    return tree.stack([initial, *others])


def member(bank: State, number: int) -> State:
    """Take one model out of a bank."""
    return {k: v[number] for k, v in bank.items()}


def chosen(bank: State, share: Tensor) -> State:
    """Take the model that a one-hot vector points at."""

    def pick(leaf: Tensor) -> Tensor:
        one_hot = share.view(-1, *[1] * (leaf.ndim - 1)).to(leaf.dtype)
        return (leaf * one_hot).sum(0).to(leaf.dtype)

    return {k: pick(v) for k, v in bank.items()}


def membership(bank: State, personal: State, x: Tensor, _: Task) -> Tensor:
    """Say which model of a bank a predictor is: a one-hot row per example."""
    same = torch.stack([(personal[k] == v).flatten(1).all(1) for k, v in bank.items()]).all(0)
    first = same & (same.cumsum(0) == 1)  # of equal models, as the choice itself takes it
    return first.to(torch.float32).expand(len(x), -1)


class Grouped(NamedTuple):
    """A tree, and a one-hot vector that says which group it belongs to."""

    value: Any
    group: Tensor  # [groups]


class GroupTotal(NamedTuple):
    """Sums by group; integers keep their maximum."""

    value: Any  # [groups, ...]
    weight: Tensor  # [groups]
    kinds: Any


@dataclass(frozen=True, kw_only=True)
class GroupMean:
    """The weighted mean within each group: sums by group, so workers may pre-reduce."""

    weights: Weights = "examples"
    needs_single_uploads = False

    def lift(self, clients: Sequence[str], uploads: Grouped, weights: Tensor) -> GroupTotal:
        """Sum the stacked uploads of each group."""
        shares = weights.double()[:, None] * uploads.group.double()  # [clients, groups]

        def weigh(leaf: Tensor) -> Tensor:
            if leaf.is_floating_point():
                return torch.einsum("cg,c...->g...", shares, leaf.double())
            mine = uploads.group.view(*uploads.group.shape, *[1] * (leaf.ndim - 1))
            return (leaf[:, None] * mine.to(leaf.dtype)).amax(0)

        kinds = tree.tree_map(lambda leaf: leaf.new_empty(0), uploads.value)
        return GroupTotal(tree.tree_map(weigh, uploads.value), shares.sum(0), kinds)

    def merge(self, a: GroupTotal, b: GroupTotal) -> GroupTotal:
        """Add two partial sums."""

        def join(x: Tensor, y: Tensor) -> Tensor:
            return x + y if x.is_floating_point() else torch.maximum(x, y)

        return GroupTotal(tree.tree_map(join, a.value, b.value), a.weight + b.weight, a.kinds)

    def finish(self, partial: GroupTotal, down: Any = None) -> Grouped:
        """Divide by each group's weight; an empty group is all zeros, with weight 0."""
        weight = partial.weight

        def divide(leaf: Tensor, kind: Tensor) -> Tensor:
            if not kind.is_floating_point():
                return leaf
            by = torch.where(weight > 0, weight, 1.0).view(-1, *[1] * (leaf.ndim - 1))
            return (leaf / by).to(kind.dtype)

        return Grouped(tree.tree_map(divide, partial.value, partial.kinds), weight)
