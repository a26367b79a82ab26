"""What can be refused before round 0, instead of after an hour."""

from __future__ import annotations

import torch
from torch import Tensor

from motet.data.federation import Examples, Federation
from motet.errors import CapabilityError, DataError, StructureError
from motet.keys import Key
from motet.task import Batch, Task


def check_fits(task: Task, federation: Federation) -> None:
    """Run two examples through the network, and compare its outputs with the labels."""
    first = federation.clients[0]
    x, y = federation.examples(first, "train")
    outputs = _try(task, x[:2], first)
    if task.criterion.kind == "classes":
        _check_labels(outputs, federation, y)
    elif task.criterion.kind == "binary" and (federation.classes or 2) > 2:
        raise DataError(
            "binary_cross_entropy expects labels 0 and 1, but the data have "
            f"{federation.classes} classes; "
            "use cross_entropy."
        )
    _check_randomness(task, Examples(x[:2], y[:2]))


def _try(task: Task, x: Tensor, client: str) -> Tensor:
    state = task.init(Key(0))
    try:
        with torch.no_grad():
            return task.outputs(state, x)
    except (RuntimeError, IndexError, ValueError, TypeError) as reason:
        raise StructureError(
            f'the network does not accept the data of client "{client}", shape {tuple(x.shape)} '
            f"and type {x.dtype}: {str(reason).splitlines()[0]}. Check the input size of `build`."
        ) from reason


def _check_randomness(task: Task, examples: Examples) -> None:
    """Refuse a network that draws from torch's own generator: results would depend on the order."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        before = torch.get_rng_state()
        weight = torch.ones(len(examples.y))
        task.loss(task.init(Key(0)), Batch(*examples, weight, torch.tensor(0)))
        drew = not torch.equal(before, torch.get_rng_state())
    if drew:
        raise CapabilityError(
            "the network draws random numbers from torch's own generator while it trains, so a "
            "result would depend on which client ran first; use `nn.Dropout` layers instead of "
            "functional dropout and the like."
        )


def _check_labels(outputs: Tensor, federation: Federation, y: Tensor) -> None:
    if y.is_floating_point():
        raise DataError(
            "cross_entropy expects whole-number labels, but the targets are real values; "
            'use loss="mse".'
        )
    classes, scores = federation.classes or int(y.max()) + 1, outputs.shape[-1]
    if classes > scores:
        raise DataError(
            f"labels run from 0 to {classes - 1}, but the network has {scores} outputs; "
            f"give it at least {classes}."
        )


def check_scorable(federation: Federation) -> None:
    """Refuse data on which nothing could be reported at the end."""
    if not any(federation.size(client, "test") for client in federation.clients):
        raise DataError(
            f'no client of "{federation.name}" has test data, so nothing could be reported; give '
            "test examples, or a share to cut from the training data (data.test = 0.2)."
        )
