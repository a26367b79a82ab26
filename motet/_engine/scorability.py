"""Whether metrics, loss, network and targets fit each other: checked before round 1."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from motet._core.criteria import Criterion
from motet._engine.evaluation import WEIGH
from motet._engine.scoring import about_task, site_examples, usual
from motet.data._federation import Federation
from motet.errors import DataError, RequestError, nearest
from motet.metrics import Metric
from motet.metrics._registry import About, resolved
from motet.task import Task

MOST_CLIENTS = 500  # whose targets are read before round 1
TRIAL = 5.0  # seconds in which an own metric is tried on as many clients as possible


def check_metrics(
    task: Task, federation: Federation, asked: Sequence[Any] | None, weigh: str
) -> tuple[Metric, ...]:
    """Return the metrics of a run, the deciding one first.

    Raises:
        RequestError: A metric is unknown or does not fit the task, or an own one fails.
        DataError: No client has test examples with a value of the metric.
    """
    if weigh not in WEIGH:
        close = nearest(weigh, WEIGH)
        raise RequestError(f'weigh= is "clients" or "examples"; got "{weigh}", {close}.')
    if asked is not None and not isinstance(asked, list | tuple):
        raise RequestError(f"metrics= expects a list, such as [{asked!r}].", option="metrics")
    y = federation.examples(federation.clients[0], "train").y
    metrics = resolved(asked, about_task(task.criterion, federation.classes, y))
    for metric in metrics:
        if not usual([metric], task.criterion):
            _check_defined(metric, task.criterion, federation)
    return metrics


def _check_defined(metric: Metric, criterion: Criterion, federation: Federation) -> None:
    """Try the metric on clients' test targets with made-up predictions, until it has a value.

    An own metric may fail on a client that is not the first: it is tried on all of them, for a
    while.
    """
    tried, defined = 0, False
    until = time.monotonic() + (TRIAL if metric.own else 0.0)
    for client in federation.clients[:MOST_CLIENTS]:
        if federation.size(client, "test"):
            tried += 1
            defined |= _has_value(metric, criterion, federation, client)
            if defined and time.monotonic() >= until:
                return
    if tried and not defined and len(federation.clients) <= MOST_CLIENTS:
        raise DataError(
            f"{metric.name} needs {metric.defined_if} at a client, and none of {tried} clients has "
            "that in its test data; choose another metric, or larger clients."
        )


def _has_value(metric: Metric, criterion: Criterion, federation: Federation, client: str) -> bool:
    y = federation.examples(client, "test").y
    about = about_task(criterion, federation.classes, y)
    site = site_examples(client, plausible(about, y), y, criterion)
    assert site.predictions is not None
    try:
        return not math.isnan(metric.score(site.targets, site.predictions))
    except RequestError as reason:
        raise RequestError(f'{reason} This was at client "{client}".') from reason


def plausible(about: About, y: Tensor) -> Tensor:
    """Make predictions that a network could make: distinct, finite, and of the right form."""
    # Numbers without a period, so that no two predictions are equal.
    rows = torch.from_numpy(np.modf(np.arange(1, y.numel() + 1) * 0.6180339887498949)[0])
    if about.kind == "regression":
        return rows.reshape(y.shape)
    if about.kind == "multilabel":
        return rows.reshape(y.shape)
    if about.kind == "survival":
        ends = torch.linspace(0.9, 0.1, len(about.times), dtype=torch.float64)
        return ends ** (0.5 + rows[: len(y), None])
    classes = max(about.classes or int(y.max()) + 1, 2)
    scores = rows.reshape(*y.shape, 1) * torch.arange(classes).double().sin()
    return scores.softmax(-1)


def check_targets(criterion: Criterion, outputs: Tensor, federation: Federation) -> None:
    """Refuse targets or a number of outputs that the loss cannot use."""
    y = federation.examples(federation.clients[0], "train").y
    check = {
        "binary": _check_binary,
        "labels": _check_labels,
        "ordinal": _check_ordinal,
        "values": _check_values,
        "survival": _check_survival,
    }.get(criterion.kind)
    if check is not None:
        check(criterion, outputs, y, federation)


def _check_binary(c: Criterion, outputs: Tensor, y: Tensor, federation: Federation) -> None:
    if (federation.classes or 2) > 2:
        raise DataError(
            f"{c.name} expects labels 0 and 1, but the data have {federation.classes} classes; "
            "use cross_entropy."
        )
    if y.ndim > 1 and y[:1].numel() > 1:
        raise DataError(
            f"{c.name} expects one label per example, but targets have shape "
            f"{tuple(y.shape[1:])}; use multi_label."
        )
    _check_zero_one(c, federation)
    if outputs[:1].numel() != 1:
        raise DataError(
            f"{c.name} expects a network with one output, got {outputs.shape[-1]}; give it one, or "
            "use cross_entropy."
        )


def _check_labels(c: Criterion, outputs: Tensor, y: Tensor, federation: Federation) -> None:
    if y.ndim != 2:
        raise DataError(
            f"{c.name} expects a 0 or 1 for every label, targets of shape [examples, labels]; got "
            f"{list(y.shape)}. For one label per example use cross_entropy."
        )
    _check_zero_one(c, federation)
    _check_outputs(c, outputs, y.shape[1], "labels")


def _check_ordinal(c: Criterion, outputs: Tensor, y: Tensor, federation: Federation) -> None:
    if federation.classes is None or y.ndim != 1:
        raise DataError(
            f"{c.name} expects one whole number per example, the position of its class; got "
            f'{y.dtype} of shape {list(y.shape)}. For values use loss="mse".'
        )
    _check_outputs(c, outputs, federation.classes - 1, "steps between classes")


def _check_values(c: Criterion, outputs: Tensor, y: Tensor, _: Federation) -> None:
    _check_outputs(c, outputs, y[:1].numel(), "values per target")


def _check_survival(c: Criterion, outputs: Tensor, y: Tensor, federation: Federation) -> None:
    if y.ndim != 2 or y.shape[1] != 2:
        raise DataError(
            f"{c.name} expects targets (time, event), shape [examples, 2]; got {list(y.shape)}."
        )
    for client in federation.clients[:MOST_CLIENTS]:
        targets = federation.examples(client, "train").y.double()
        wrong = (targets[:, 0] < 0) | ((targets[:, 1] != 0) & (targets[:, 1] != 1))
        if bool(wrong.any()):
            row = int(wrong.int().argmax())
            raise DataError(
                f'client "{client}": row {row} (train) has time {targets[row, 0]:g} and event '
                f"{targets[row, 1]:g}; a time is 0 or more, and an event 1 (it happened) or 0 "
                "(censored)."
            )
    _check_outputs(c, outputs, len(c.times), "time bins")


def _check_zero_one(c: Criterion, federation: Federation) -> None:
    for client in federation.clients[:MOST_CLIENTS]:
        y = federation.examples(client, "train").y
        wrong = ((y != 0) & (y != 1)).reshape(len(y), -1).any(1)
        if bool(wrong.any()):
            row = int(wrong.int().argmax())
            raise DataError(
                f'{c.name} expects targets 0 and 1, but row {row} of client "{client}" (train) has '
                f"{y[row].tolist()}; encode them, or use another loss."
            )


def _check_outputs(c: Criterion, outputs: Tensor, expected: int, what: str) -> None:
    found = outputs[:1].numel()
    if found != expected:
        raise DataError(
            f"{c.name} expects a network with {expected} outputs ({what}), got {found}; give it "
            f"{expected}."
        )
