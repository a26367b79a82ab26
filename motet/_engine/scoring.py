"""One client's predictions and targets as arrays, and their scores under several metrics."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from motet._core.criteria import WITH_CLASSES, Criterion
from motet._engine.examples import SiteExamples
from motet.errors import DataError
from motet.metrics import Metric, TaskKind
from motet.metrics._classes import log_losses
from motet.metrics._registry import About, resolved
from motet.metrics._survival import curve_losses

TINY = 1e-30  # a probability of 0 costs this much in the log loss, not infinity


class Score(NamedTuple):
    """One client's result on its own data."""

    client: str
    examples: int  # labels scored: for sequences, every position
    value: float
    loss: float
    diverged: bool = False  # some of its predictions are NaN or infinite
    undefined: bool = False  # its examples have no value of this metric: only one class, say


class Scored(NamedTuple):
    """One client's scores, one per metric, and the examples they are about if these are kept."""

    scores: tuple[Score, ...]
    examples: SiteExamples | None = None
    examples_in_split: int = 0


def about_task(criterion: Criterion, classes: int | None, y: Tensor) -> About:
    """Say what metrics need to know about a task, given some targets."""
    kind: TaskKind
    width = y.shape[1] if y.ndim > 1 else 1
    if criterion.kind == "survival":
        return About("survival", times=criterion.times)
    if criterion.kind == "values":
        return About("regression")
    if criterion.kind == "labels":
        return About("multilabel", width)
    if criterion.kind == "ordinal":
        kind = "ordinal"
    elif y.ndim > 1:
        kind = "sequence"
    else:
        kind = "binary" if criterion.kind == "binary" or classes == 2 else "multiclass"
    return About(kind, 2 if criterion.kind == "binary" else classes)


def score(client: str, predicted: Tensor, y: Tensor, criterion: Criterion) -> Score:
    """Score one client by the usual metric of its kind of task."""
    if criterion.kind == "values":
        squared = (predicted.double().reshape(y.shape) - y.double()).square().mean().item()
        return Score(client, y.numel(), squared**0.5, squared, not math.isfinite(squared))
    if criterion.kind in WITH_CLASSES:
        return _accuracy(client, *_labelled(predicted, y))
    (metric,) = resolved(None, about_task(criterion, None, y))
    return score_all(client, predicted, y, criterion, (metric,)).scores[0]


def _accuracy(client: str, predicted: Tensor, y: Tensor) -> Score:
    if not y.numel():  # nothing but padding
        return Score(client, 0, math.nan, math.nan, undefined=True)
    # A model that has diverged predicts NaN, and the largest of those would be class 0.
    finite = predicted.isfinite().all(-1)
    right = ((predicted.argmax(-1) == y) & finite).double().mean().item()
    chosen = predicted.double().gather(-1, y.long().unsqueeze(-1)).clamp(min=TINY)
    return Score(client, y.numel(), right, -chosen.log().mean().item(), not bool(finite.all()))


def _labelled(predicted: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Leave out padding, which has negative labels; everything else stays as it is."""
    there = y >= 0
    return (predicted, y) if bool(there.all()) else (predicted[there], y[there])


def score_all(
    client: str,
    predicted: Tensor,
    y: Tensor,
    criterion: Criterion,
    metrics: Sequence[Metric],
    keep: Callable[[str, int], np.ndarray] | None = None,
) -> Scored:
    """Score one client under every metric.

    Args:
        client: Its name.
        predicted: Its predictions.
        y: Its targets.
        criterion: What predictions are.
        metrics: The deciding one first.
        keep: Chooses the examples whose predictions are returned, too; None: none of them.
    """
    first = score(client, predicted, y, criterion) if usual(metrics, criterion) else None
    if first is not None and len(metrics) == 1 and keep is None:
        return Scored((first,))
    site = site_examples(client, predicted, y, criterion)
    finite = bool(predicted.isfinite().all())
    scores = tuple(
        first
        if first is not None and metric.name in ("accuracy", "rmse")
        else _scored(metric, site, _counted(y, site, criterion), finite=finite)
        for metric in metrics
    )
    kept = None if keep is None else site.only(keep(client, len(y)))
    return Scored(scores, kept, site.examples)


def usual(metrics: Sequence[Metric], criterion: Criterion) -> bool:
    """Tell whether the metric that goes with the kind of task is asked for."""
    name = "rmse" if criterion.kind == "values" else "accuracy"
    return any(metric.name == name for metric in metrics) and (
        criterion.kind in (*WITH_CLASSES, "values")
    )


def _counted(y: Tensor, site: SiteExamples, criterion: Criterion) -> int:
    """Count what was scored: examples, or every value of a vector and every position."""
    return y.numel() if criterion.kind == "values" else len(site.example)


def _scored(metric: Metric, site: SiteExamples, counted: int, *, finite: bool) -> Score:
    assert site.predictions is not None
    value = metric.score(site.targets, site.predictions)
    # With finite predictions only the targets can leave a metric without a value.
    undefined = math.isnan(value) and finite
    loss = float(site.loss.mean()) if len(site.loss) else math.nan
    return Score(site.client, counted, value, loss, not finite, undefined)


def site_examples(client: str, predicted: Tensor, y: Tensor, criterion: Criterion) -> SiteExamples:
    """Spread one client's predictions out, a row per label, without padding."""
    example = torch.arange(len(y))
    if criterion.kind in WITH_CLASSES:
        if y.ndim > 1:
            example = example.unsqueeze(1).expand(y.shape[0], y[0].numel()).reshape(y.shape)
        there = y >= 0
        predicted, y, example = predicted[there], y[there].long(), example[there]
    elif criterion.kind == "values":
        predicted = predicted.reshape(y.shape)
    targets, predictions = y.cpu().numpy(), predicted.detach().double().cpu().numpy()
    loss, correct = _by_label(targets, predictions, criterion)
    return SiteExamples(client, example.numpy(), targets, predictions, loss, correct)


def _by_label(t: np.ndarray, p: np.ndarray, criterion: Criterion) -> tuple[np.ndarray, np.ndarray]:
    """Return the loss of each row, and whether it is right (NaN for values and survival)."""
    unknown = np.full(len(t), np.nan)
    with np.errstate(invalid="ignore", over="ignore"):
        if criterion.kind == "values":
            return np.square(p - t).reshape(len(t), -1).mean(1), unknown
        if criterion.kind == "survival":
            return curve_losses(criterion.times, t, p), unknown
        if criterion.kind == "labels":
            right = ((p > 0.5) == (t > 0)) & np.isfinite(p)
            return log_losses(t, p), right.mean(1)
    finite = np.isfinite(p).all(1)
    return log_losses(t, p), ((p.argmax(1) == t) & finite).astype(float)


def scores(
    predictions: Iterable[tuple[str, Tensor]],
    labels: Callable[[str], Tensor],
    criterion: Criterion,
    split: str,
    metrics: Sequence[Metric],
    keep: Callable[[str, int], np.ndarray] | None = None,
) -> Iterator[Scored]:
    """Score predictions, client by client, as they come."""
    nobody = True
    for client, predicted in predictions:
        nobody = False
        yield score_all(client, predicted, labels(client), criterion, metrics, keep)
    if nobody:
        raise DataError(
            f'no client has examples in the split "{split}", so there is nothing to score. Give '
            f"some, or cut them from the training examples: split=motet.data.Split({split}=0.2)."
        )


def with_examples(clients: Sequence[str], size: Callable[[str], int]) -> list[str]:
    """Keep the clients that have anything to score: no data is no score, not a perfect one."""
    return [client for client in sorted(clients) if size(client) > 0]
