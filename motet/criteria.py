"""Losses by name: one loss per example, and what the network's outputs mean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from motet.errors import RequestError, nearest

Kind = Literal["classes", "binary", "values"]


@dataclass(frozen=True)
class Criterion:
    """One loss per example, and whether outputs are class scores, one binary score, or values."""

    name: str
    example_loss: Callable[[Tensor, Tensor], Tensor]
    kind: Kind

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Turn outputs into what a user calls a prediction: class probabilities, or values."""
        if self.kind == "classes":
            return outputs.softmax(-1)
        if self.kind == "binary":
            positive = _one_score(outputs).sigmoid()
            return torch.stack([1 - positive, positive], dim=-1)
        return outputs


def cross_entropy(outputs: Tensor, y: Tensor) -> Tensor:
    """Score classes; sequences ([batch, time, class]) average over their positions."""
    # Half as many operations as torch's own, which also looks for labels to ignore.
    chosen = outputs.log_softmax(-1).gather(-1, y.unsqueeze(-1))
    return _per_example(-chosen.squeeze(-1))


def binary_cross_entropy(outputs: Tensor, y: Tensor) -> Tensor:
    """Score one logit per example against 0 or 1."""
    score = _one_score(outputs)
    return F.binary_cross_entropy_with_logits(score, y.to(score.dtype), reduction="none")


def mse(outputs: Tensor, y: Tensor) -> Tensor:
    """Square the error, averaged over the values of an example."""
    return _per_example((outputs.reshape(y.shape) - y).square())


def mae(outputs: Tensor, y: Tensor) -> Tensor:
    """Take the absolute error, averaged over the values of an example."""
    return _per_example((outputs.reshape(y.shape) - y).abs())


CRITERIA = {
    "cross_entropy": Criterion("cross_entropy", cross_entropy, "classes"),
    "binary_cross_entropy": Criterion("binary_cross_entropy", binary_cross_entropy, "binary"),
    "mse": Criterion("mse", mse, "values"),
    "mae": Criterion("mae", mae, "values"),
}


def criterion(loss: str | Callable[[Tensor, Tensor], Tensor], kind: Kind | None) -> Criterion:
    """Look a loss up by name, or wrap a callable (of class scores, unless `kind` says else)."""
    if callable(loss):
        return Criterion(getattr(loss, "__name__", "custom"), loss, kind or "classes")
    if loss not in CRITERIA:
        raise RequestError(f'no loss is called "{loss}"; {nearest(loss, CRITERIA)}.')
    return CRITERIA[loss]


def _per_example(losses: Tensor) -> Tensor:
    return losses.flatten(1).mean(1) if losses.ndim > 1 else losses


def _one_score(outputs: Tensor) -> Tensor:
    return outputs.squeeze(-1) if outputs.ndim > 1 else outputs
