"""Batches: the order in which a phase of local work visits a client's data.

A method names its phases and gives each a `Plan`; the backend draws the order beforehand, from keys
alone. Short batches and missing steps are weight-0 rows in the order, so a method never sees a
mask.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from motet._core.keys import Key
from motet.errors import CapabilityError, RequestError
from motet.task import Batch

NO_EXAMPLE = (
    1e-30  # weight of a step that drew no example: it is taken, but does not affect the loss
)
RARE = 1e-12  # how likely a Poisson sample is larger than its bound, at most


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One phase of local work.

    Attributes:
        epochs: Passes over the data; 1 if neither `epochs` nor `steps` is given.
        steps: Gradient steps instead of epochs, reshuffled whenever the data run out.
        batch_size: Examples per step; None is the full batch.
        split: "train" or "val". There is no plan for test data.
        part: `(i, k)` walks the i-th of k disjoint parts of the data, the same part in every round.
        share: Walks a random share of the data (of the part), drawn anew in every round.
        stream: Phases with the same stream see the same batches in the same order.
        fixed: Walks in the same order in every round.
        scheduled: Whether the round's schedule scales the learning rate; phases that serve a client
            never are, or a decaying schedule would leave nothing to adapt with.
        sampling: "shuffle" deals the data out in batches of one size; "poisson" takes each example
            into each step with the same chance, batch_size / examples, as differential privacy by
            noise wants it. Steps are as many as "shuffle" has.

    Example:
        >>> Plan(epochs=2, batch_size=4).length(10)  # steps of a client with 10 examples
        6
        >>> Plan(split="test")
        Traceback (most recent call last):
            ...
        motet.errors.RequestError: a plan walks "train" or "val" data, not "test": test data ...
    """

    epochs: int | None = None
    steps: int | None = None
    batch_size: int | None = 32
    split: Literal["train", "val"] = "train"
    part: tuple[int, int] | None = None
    share: float = 1.0
    stream: str = "train"
    fixed: bool = False
    scheduled: bool = True
    sampling: Literal["shuffle", "poisson"] = "shuffle"

    def __post_init__(self) -> None:
        if self.epochs is not None and self.steps is not None:
            raise RequestError(
                f"give epochs= or steps=, not both; got epochs={self.epochs} and "
                f"steps={self.steps}."
            )
        for name in ("epochs", "steps"):
            if (getattr(self, name) or 0) < 0:
                raise RequestError(
                    f"{name} must be 0 or more; got {getattr(self, name)}.", option=name
                )
        if self.batch_size is not None and self.batch_size < 1:
            raise RequestError(
                f"batch_size must be 1 or more, or None for the full batch; got {self.batch_size}.",
                option="batch_size",
            )
        if self.split not in ("train", "val"):
            raise RequestError(
                f'a plan walks "train" or "val" data, not "{self.split}": '
                "test data never train, adapt or select."
            )
        if self.part is not None and not 0 <= self.part[0] < self.part[1]:
            raise RequestError(
                f"part=(i, k) is the i-th of k parts, counted from 0; got {self.part}."
            )
        if not 0 < self.share <= 1:
            raise RequestError(
                f"share= must be above 0 and at most 1; got {self.share}.", option="share"
            )
        if self.sampling not in ("shuffle", "poisson"):
            raise RequestError(f'sampling= is "shuffle" or "poisson"; got {self.sampling!r}.')

    def examples(self, size: int) -> int:
        """Return how many examples this phase processes.

        Args:
            size: Number of the client's examples.
        """
        mine = size
        if self.part is not None and size >= self.part[1]:
            mine = len(range(self.part[0], size, self.part[1]))
        return math.ceil(self.share * mine - 1e-9)  # 0.07 * 100 is a little more than 7

    def width(self, size: int) -> int:
        """Return how many rows each batch has.

        Args:
            size: Number of the client's examples.
        """
        usual = self._usual_size(size)
        return usual if self.sampling == "shuffle" else min(_bound(usual), self.examples(size))

    def chance(self, size: int) -> float:
        """Return the probability that an example is in a step, if examples are drawn one by one.

        Args:
            size: Number of the client's examples.
        """
        return self._usual_size(size) / max(self.examples(size), 1)

    def length(self, size: int) -> int:
        """Return how many steps this phase takes.

        Args:
            size: Number of the client's examples.
        """
        mine = self.examples(size)
        if mine == 0:
            return 0
        if self.steps is not None:
            return self.steps
        per_epoch = math.ceil(mine / self._usual_size(size))
        return per_epoch * (1 if self.epochs is None else self.epochs)

    def _usual_size(self, size: int) -> int:
        mine = self.examples(size)
        return min(self.batch_size or mine, mine)


def _bound(expected: int) -> int:
    """Say which size a Poisson sample does not exceed, by Bernstein's inequality."""
    doubts = -math.log(RARE)
    return math.ceil(expected + doubts / 3 + math.sqrt(doubts**2 / 9 + 2 * doubts * expected))


class Order(NamedTuple):
    """Which rows form which step."""

    rows: np.ndarray  # [steps, batch] rows of the client's split
    weight: np.ndarray  # [steps, batch] 1 for a real example, 0 for filling
    key: np.ndarray  # [steps] a number per step, for dropout


class Batches(NamedTuple):
    """A client's examples and the order in which one phase walks them.

    Attributes:
        x: Inputs, [examples, ...].
        y: Targets, [examples, ...].
        size: How many of the examples are real.
        rows: Rows of `x` and `y` that form each step, [steps, batch].
        weight: 1 for a real example and 0 for padding, [steps, batch].
        key: A number per step, for dropout, [steps].
        rate: This round's factor on the learning rate.

    Example:
        >>> import torch
        >>> x, y = torch.arange(3.0)[:, None], torch.tensor([0, 1, 0])
        >>> rows, weight = torch.tensor([[2, 0], [1, 0]]), torch.tensor([[1.0, 1.0], [1.0, 0.0]])
        >>> size, keys, rate = torch.tensor(3), torch.arange(2), torch.tensor(1.0)
        >>> batches = Batches(x, y, size, rows, weight, keys, rate)
        >>> [batch.x.flatten().tolist() for batch in batches.steps()]
        [[2.0, 0.0], [1.0, 0.0]]
        >>> int(batches.active_steps()), int(batches.weight.sum())
        (2, 3)
    """

    x: Tensor
    y: Tensor
    size: Tensor
    rows: Tensor
    weight: Tensor
    key: Tensor
    rate: Tensor  # this round's factor on the learning rate

    def step(self, number: int) -> Batch:
        """Return the examples of one step.

        Args:
            number: Number of the step, from 0.
        """
        chosen = self.rows[number]
        return Batch(self.x[chosen], self.y[chosen], self.weight[number], self.key[number])

    def steps(self) -> Iterator[Batch]:
        """Yield the steps in order."""
        for number in range(self.rows.shape[0]):
            yield self.step(number)

    def resized(self, width: int) -> Batches:
        """Return the same steps with another number of rows, filled up with weight 0.

        Args:
            width: Rows per step: at least as many as any step has real ones, if none is to go.
        """
        extra = width - self.rows.shape[-1]
        if extra == 0:
            return self
        if extra < 0:
            return self._replace(rows=self.rows[..., :width], weight=self.weight[..., :width])
        rows, weight = (pad(leaf, (0, extra)) for leaf in (self.rows, self.weight))
        return self._replace(rows=rows, weight=weight)

    def active_steps(self) -> Tensor:
        """Return the number of steps that hold at least one real example."""
        return self.weight.any(-1).sum()


def draw(plan: Plan, size: int, key: Key, parts_key: Key) -> Order:
    """Draw the order of one phase for a client with `size` examples."""
    key = parts_key if plan.fixed else key
    rows = _part(plan, size, parts_key)
    if plan.share < 1:
        shuffled = key.fold(plan.stream, "share").numpy().permutation(rows)
        rows = np.sort(shuffled[: plan.examples(size)])
    if len(rows) == 0 or plan.steps == 0 or plan.epochs == 0:
        nothing = np.zeros((0, 1))
        return Order(nothing.astype(np.int64), nothing.astype(np.float32), np.zeros(0, np.int64))
    if plan.sampling == "poisson":
        return _poisson_order(plan, size, rows, key.fold(plan.stream, "poisson"))
    width = plan.width(size)
    per_epoch = -(-len(rows) // width)
    steps = plan.steps if plan.steps is not None else per_epoch * (plan.epochs or 1)
    epochs = [
        _epoch(rows, width, key.fold(plan.stream, number), shuffle=plan.batch_size is not None)
        for number in range(-(-steps // per_epoch))
    ]
    index, weight = (_joined(parts)[:steps] for parts in zip(*epochs, strict=True))
    first = key.fold(plan.stream, "dropout").integer(bits=30)
    return Order(index, weight, np.arange(first, first + steps))


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _poisson_order(plan: Plan, size: int, rows: np.ndarray, key: Key) -> Order:
    samples = [_poisson_step(plan, size, rows, key.fold(n)) for n in range(plan.length(size))]
    index, weight = (np.stack(values) for values in zip(*samples, strict=True))
    # Noise that is drawn twice would cancel, so keys come from a larger set than for dropout.
    first = key.fold("noise").integer(bits=62)
    return Order(index, weight, np.arange(first, first + len(index)))


def _poisson_step(
    plan: Plan, size: int, rows: np.ndarray, key: Key
) -> tuple[np.ndarray, np.ndarray]:
    chosen = key.numpy().random(len(rows)) < plan.chance(size)
    width, drawn = plan.width(size), int(chosen.sum())
    if drawn > width:  # to cut the sample off would be another mechanism than the one accounted for
        raise CapabilityError(
            f"a Poisson sample has {drawn} examples, and at most {width} were expected, which "
            f"happens less than once in {1 / RARE:.0e} steps; run again with another seed."
        )
    filled = np.concatenate([rows[chosen], rows[~chosen]])[:width]
    weight = (np.arange(width) < drawn).astype(np.float32)
    if drawn == 0:
        weight[0] = NO_EXAMPLE
    return filled.astype(np.int64), weight


def _part(plan: Plan, size: int, key: Key) -> np.ndarray:
    if plan.part is None:
        return np.arange(size)
    which, parts = plan.part
    if size < parts:  # too few examples to share out: every part is the whole
        return np.arange(size)
    return np.sort(key.fold("parts").numpy().permutation(size)[which::parts])


def _epoch(
    rows: np.ndarray, width: int, key: Key, *, shuffle: bool
) -> tuple[np.ndarray, np.ndarray]:
    order = key.numpy().permutation(rows) if shuffle else rows
    steps = -(-len(rows) // width)
    missing = steps * width - len(rows)
    weight = np.ones((steps, width), np.float32)
    # A short last batch is filled with real examples of weight 0: they cannot enter the loss, and
    # where a batch normalisation layer sees them they are at least the client's own data, the same
    # on every backend.
    if missing:
        order = np.concatenate([order, order[:missing]])
        weight[-1, width - missing :] = 0
    return order.reshape(steps, width).astype(np.int64, copy=False), weight


def batches(x: Tensor, y: Tensor, order: Order, rate: float) -> Batches:
    """Join a client's examples with the order of a phase."""
    return Batches(
        x=x,
        y=y,
        size=_number(len(y), torch.int64),
        rows=torch.from_numpy(order.rows),
        weight=torch.from_numpy(order.weight),
        key=torch.from_numpy(order.key),
        rate=_number(rate, torch.float64),
    )


@lru_cache(
    maxsize=4096
)  # many clients have equal ones, and a tensor takes longer to make than this
def _number(value: float, kind: torch.dtype) -> Tensor:
    return torch.tensor(value, dtype=kind, device="cpu")
