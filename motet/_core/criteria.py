"""Losses by name: one loss per example, and what the network's outputs mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from motet.errors import RequestError, nearest

Kind = Literal["classes", "binary", "ordinal", "labels", "values", "survival"]
KINDS: tuple[Kind, ...] = ("classes", "binary", "ordinal", "labels", "values", "survival")
WITH_CLASSES = ("classes", "binary", "ordinal")  # kinds whose predictions are class probabilities


@dataclass(frozen=True)
class Criterion:
    """One loss per example, and what the outputs are.

    Attributes:
        kind: "classes" (scores), "binary" (one score), "ordinal" (a score per step between
            classes), "labels" (a score per label), "values" or "survival" (a score per time bin).
        times: Ends of the time bins, for "survival".
    """

    name: str
    example_loss: Callable[[Tensor, Tensor], Tensor]
    kind: Kind
    times: tuple[float, ...] = ()

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Turn outputs into predictions: probabilities, survival curves, or values."""
        if self.kind == "classes":
            return outputs.softmax(-1)
        if self.kind == "binary":
            positive = _one_score(outputs).sigmoid()
            return torch.stack([1 - positive, positive], dim=-1)
        if self.kind == "ordinal":
            above = (-F.softplus(-outputs).cumsum(-1)).exp()  # P(class > j)
            edge = torch.ones_like(above[..., :1])
            return torch.cat([edge, above], -1) - torch.cat([above, 0 * edge], -1)
        if self.kind == "labels":
            return outputs.sigmoid()
        if self.kind == "survival":
            return (-F.softplus(outputs).cumsum(-1)).exp()
        return outputs

    def outputs(self, classes: int | None, width: int = 1) -> int:
        """Count the outputs that a network needs.

        Args:
            classes: Classes of the data; None: the targets are numbers.
            width: Numbers in one target.
        """
        if self.kind == "binary":
            return 1
        if self.kind == "survival":
            return len(self.times)
        if self.kind in ("labels", "values") or classes is None:
            return width
        return classes - 1 if self.kind == "ordinal" else classes


def cross_entropy(outputs: Tensor, y: Tensor) -> Tensor:
    """Score classes; sequences ([batch, time, class]) average over their positions."""
    # Half as many operations as torch's own, which also looks for labels to ignore.
    chosen = outputs.log_softmax(-1).gather(-1, y.unsqueeze(-1))
    return _per_example(-chosen.squeeze(-1))


def masked_cross_entropy(outputs: Tensor, y: Tensor) -> Tensor:
    """Score classes where the label is not negative: padding has a negative one, such as -100."""
    there = y >= 0
    chosen = outputs.log_softmax(-1).gather(-1, y.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    if y.ndim == 1:
        return -chosen * there
    losses, counted = (-chosen * there).flatten(1), there.flatten(1)
    return losses.sum(1) / counted.sum(1).clamp(min=1)


def binary_cross_entropy(outputs: Tensor, y: Tensor) -> Tensor:
    """Score one logit per example against 0 or 1."""
    score = _one_score(outputs)
    return F.binary_cross_entropy_with_logits(score, y.to(score.dtype), reduction="none")


def multi_label(outputs: Tensor, y: Tensor) -> Tensor:
    """Score one logit per label against 0 or 1, averaged over the labels."""
    wanted = y.to(outputs.dtype)
    return _per_example(F.binary_cross_entropy_with_logits(outputs, wanted, reduction="none"))


def ordinal(outputs: Tensor, y: Tensor) -> Tensor:
    """Score ordered classes: output j is the logit of going beyond class j once there.

    The continuation-ratio model (CORN: Shi, Cao and Raschka 2023), without its shared weights.
    """
    steps = torch.arange(outputs.shape[-1], device=outputs.device)
    beyond, stops = y.unsqueeze(-1) > steps, y.unsqueeze(-1) == steps
    return (F.softplus(-outputs) * beyond + F.softplus(outputs) * stops).sum(-1)


def mse(outputs: Tensor, y: Tensor) -> Tensor:
    """Square the error, averaged over the values of an example."""
    return _per_example((outputs.reshape(y.shape) - y).square())


def mae(outputs: Tensor, y: Tensor) -> Tensor:
    """Take the absolute error, averaged over the values of an example."""
    return _per_example((outputs.reshape(y.shape) - y).abs())


@dataclass(frozen=True)
class DiscreteHazard:
    """A survival loss: one logit per time bin, the hazard of the event in it once it is reached.

    Targets are (time, event), event 1 if it happened then and 0 if the example was last seen
    without it. A time bin includes its end. An example that is censored within a bin counts for
    the bins before; one that is known beyond the last bin counts as having survived all of them.
    The likelihood is a sum over examples (Gensheimer and Narasimhan 2019), unlike Cox's.

    Attributes:
        times: Ends of the time bins, ascending.

    >>> loss = DiscreteHazard((1.0, 2.0))
    >>> even = torch.zeros(3, 2)  # half of those who reach a bin die in it
    >>> [round(v, 3) for v in loss(even, torch.tensor([[1.5, 1], [1.5, 0], [9, 1]])).exp().tolist()]
    [4.0, 2.0, 4.0]
    """

    times: tuple[float, ...]

    def __post_init__(self) -> None:
        times = tuple(float(end) for end in self.times)
        if not times or times[0] <= 0 or any(b <= a for a, b in pairwise(times)):
            raise RequestError(
                f"time bins end at positive, ascending times; got {list(self.times)[:6]}."
            )
        object.__setattr__(self, "times", times)

    @classmethod
    def of(cls, times: Any, events: Any, bins: int = 10) -> DiscreteHazard:
        """Choose bins with about equally many events each.

        Args:
            times: Observed times.
            events: 1 where the event happened, 0 where the example was censored.
            bins: How many, at most: equal times share a bin.

        >>> DiscreteHazard.of([1.0, 2.0, 3.0, 4.0, 9.0], [1, 1, 1, 1, 0], bins=2).times
        (2.0, 4.0)
        """
        known = torch.as_tensor(times, dtype=torch.float64)[torch.as_tensor(events) > 0]
        if not len(known):
            raise RequestError(
                "time bins are chosen by the times of events, but no example has an event; give "
                "the ends of the bins instead (times=...)."
            )
        number = len(known)
        last = [-(-share * number // bins) - 1 for share in range(1, bins + 1)]
        ends = sorted(set(known.sort().values[last].tolist()))
        return cls(tuple(end for end in ends if end > 0))

    def __call__(self, outputs: Tensor, y: Tensor) -> Tensor:
        ends = outputs.new_tensor(self.times)
        starts = outputs.new_tensor((float("-inf"), *self.times[:-1]))
        time, event = y[..., 0:1].to(outputs.dtype), y[..., 1:2] > 0
        survived = torch.where(event, time > ends, time >= ends)
        dies = event & (time > starts) & (time <= ends)
        return (F.softplus(outputs) * survived + F.softplus(-outputs) * dies).sum(-1)


CRITERIA = {
    "cross_entropy": Criterion("cross_entropy", cross_entropy, "classes"),
    "masked_cross_entropy": Criterion("masked_cross_entropy", masked_cross_entropy, "classes"),
    "binary_cross_entropy": Criterion("binary_cross_entropy", binary_cross_entropy, "binary"),
    "multi_label": Criterion("multi_label", multi_label, "labels"),
    "ordinal": Criterion("ordinal", ordinal, "ordinal"),
    "mse": Criterion("mse", mse, "values"),
    "mae": Criterion("mae", mae, "values"),
}
HAZARD = "discrete_hazard"
LOSSES = (*CRITERIA, HAZARD)


def criterion(
    loss: str | Callable[[Tensor, Tensor], Tensor],
    kind: Kind | None,
    times: Sequence[float] | None = None,
) -> Criterion:
    """Look a loss up by name, or wrap a callable (of class scores, unless `kind` says else)."""
    if kind is not None and kind not in KINDS:
        raise RequestError(f'no task is of kind "{kind}"; {nearest(kind, KINDS)}.')
    if loss == HAZARD:
        if times is None:
            raise RequestError(
                f'the loss "{HAZARD}" needs the ends of its time bins: model.times = [365, 730], '
                "or loss=motet.task.DiscreteHazard(times) in Python."
            )
        loss = DiscreteHazard(tuple(times))
    if isinstance(loss, DiscreteHazard):
        return Criterion(HAZARD, loss, "survival", loss.times)
    if callable(loss):
        if kind == "survival" and not times:
            raise RequestError(
                'a loss of kind "survival" needs the ends of its time bins (times=...).'
            )
        name = getattr(loss, "__name__", "custom")
        return Criterion(name, loss, kind or "classes", tuple(map(float, times or ())))
    if loss not in CRITERIA:
        raise RequestError(f'no loss is called "{loss}"; {nearest(loss, LOSSES)}.', option="loss")
    return CRITERIA[loss]


def _per_example(losses: Tensor) -> Tensor:
    return losses.flatten(1).mean(1) if losses.ndim > 1 else losses


def _one_score(outputs: Tensor) -> Tensor:
    return outputs.squeeze(-1) if outputs.ndim > 1 else outputs
