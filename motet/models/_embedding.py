"""Features of a reference network that is trained to tell classes apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from motet._core.keys import Key
from motet._core.schedules import Cosine
from motet._core.selectors import module_path
from motet._core.text import plural
from motet._core.tree import State
from motet._training.batching import Plan, batches, draw
from motet._training.fitting import fit
from motet.errors import MotetError, RequestError, nearest
from motet.models._registry import build, names
from motet.optim import Sgd
from motet.task import Task

AT_ONCE = 512  # rows that go through the network together
CHECKED = 4096  # training rows that the accuracy is measured on


@dataclass(frozen=True, kw_only=True)
class Training:
    """How a network is trained: see `motet.data.Trained`."""

    network: str
    accuracy: float
    epochs: int
    lr: float
    batch_size: int


def learned_features(
    how: Training, x: Tensor, y: Tensor, classes: int, key: Key
) -> Callable[[Tensor], Tensor]:
    """Train a network on rows of all clients, and return the function that makes features."""
    if how.network not in names():
        raise RequestError(
            f'embed: no network is called "{how.network}"; {nearest(how.network, names())}.'
        )
    try:
        task = Task(lambda: build(how.network, shape=x.shape[1:], classes=classes))
    except MotetError as reason:
        raise RequestError(f"embed.network: {reason}") from None
    state = _trained(how, task, x, y, key)
    head = module_path(task.skeleton, "head")

    def features(rows: Tensor) -> Tensor:
        with torch.no_grad():
            return task.features(state, rows, head)

    return features


def _trained(how: Training, task: Task, x: Tensor, y: Tensor, key: Key) -> State:
    checked = key.fold("checked").numpy().permutation(len(y))[:CHECKED]
    state, plan = task.init(key.fold("init")), Plan(epochs=1, batch_size=how.batch_size)
    optimizer, reached = Sgd(lr=how.lr, momentum=0.9), 0.0
    for epoch in range(how.epochs):
        order = draw(plan, len(y), key.fold("epoch", epoch), key)
        walk = batches(x, y, order, Cosine()(epoch, how.epochs))
        state = fit(task, state, walk, optimizer)
        reached = _accuracy(task, state, x[checked], y[checked])
        if reached >= how.accuracy:
            return state
    raise RequestError(
        f"embed: {how.network} reached an accuracy of {reached:.0%} on its training rows in "
        f"{plural(how.epochs, 'epoch')}; {how.accuracy:.0%} was asked for. Raise "
        "embed.epochs, change embed.lr, or lower embed.accuracy."
    )


def _accuracy(task: Task, state: State, x: Tensor, y: Tensor) -> float:
    with torch.no_grad():
        parts = range(0, len(y), AT_ONCE)
        guesses = [task.outputs(state, x[i : i + AT_ONCE]).argmax(-1) for i in parts]
    return float((torch.cat(guesses) == y).double().mean())
