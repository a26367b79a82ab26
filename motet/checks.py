"""What can be refused before round 0, instead of after an hour."""

from __future__ import annotations

import torch
from torch import Tensor

from motet.data.federation import Federation
from motet.errors import DataError, StructureError
from motet.keys import Key
from motet.task import Task


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
