"""`fit`, the one local training loop.

`fit` is a primitive: what the loss needs is an explicit argument, never captured. So a method reads
as straight-line code for one client, and a backend that has stacked a cohort may run its own
stacked step loop instead (docs/decisions/0002-fit-is-a-primitive.md).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

from motet import tree
from motet.errors import StructureError
from motet.execution.choice import current
from motet.execution.devices import at
from motet.execution.programs import traceable
from motet.execution.stacked import at_once
from motet.execution.stepping import Objective as Objective
from motet.execution.stepping import (
    Spec,
    channels_last,
    image_last,
    in_turn,
    one_client,
    rebuilt,
)
from motet.gradient import grad
from motet.optim import Optimizer
from motet.plans import Batches
from motet.task import Batch, Task
from motet.tree import State


def fit(
    task: Task,
    state: State,
    batches: Batches,
    optimizer: Optimizer,
    *,
    loss: Objective | None = None,
    train: Collection[str] | None = None,
    given: tuple[Any, ...] = (),
) -> State:
    """Take one optimizer step per batch and return the state after the last.

    Args:
        task: Says which entries are buffers, and is the default loss.
        state: Parameters and buffers; entries that are not trained come back as they went in, bit
            for bit.
        batches: The examples and the order to walk them.
        optimizer: Fresh moments are made for this call.
        loss: `(state, batch, *given) -> Loss`; `task.loss` if None.
        train: Names that may change (parameters by gradient, buffers by the forward pass); all if
            None.
        given: Trees the loss needs besides the state: anchors, control variates, frozen models.
    """
    names = frozenset(state if train is None else train)
    _check_known(names, state)
    buffers = {k: v for k, v in state.items() if task.is_buffer(k)}
    params = {k: v for k, v in state.items() if k in names and not task.is_fixed(k)}
    if not params:
        return state
    frozen = tree.drop(state, params.keys() | buffers.keys())
    structure = (params, buffers, frozen, batches, given)
    moving = names.intersection(buffers)
    spec = Spec(task, loss or task.loss, optimizer, moving, structure)
    apply: Callable[..., tuple[Tensor, ...]] = _Fit.apply  # torch leaves it untyped
    trained = apply(spec, *tree.leaves(spec.structure))
    new: tuple[State, State] = rebuilt((params, buffers), trained)
    return state | new[0] | new[1]


def mean_loss(task: Task, state: State, batches: Batches) -> Tensor:
    """Compute the mean loss over all examples, in evaluation mode; 0 without examples.

    A primitive as `fit` is, for the same reason; so there is no gradient through it.
    """
    apply: Callable[..., Tensor] = _MeanLoss.apply
    return apply(task, (state, batches), *tree.leaves((state, batches)))


def mean_gradient(task: Task, state: State, batches: Batches) -> State:
    """Compute the gradient of the mean loss over all examples, in training mode; 0 without any."""
    params = {k: v for k, v in state.items() if not task.is_fixed(k)}
    total, weight = tree.zeros_like(params), torch.zeros(())
    for batch in batches.steps():
        here = batch.weight.sum()
        slope = grad(lambda p, batch=batch: task.loss(state | p, batch).value)(params)
        total = {k: total[k] + here * slope[k] for k in params}
        weight = weight + here
    return {k: leaf / weight.clamp(min=1) for k, leaf in total.items()}


def _check_known(names: frozenset[str], state: State) -> None:
    unknown = sorted(names - state.keys())
    if unknown:
        raise StructureError(
            f"train= names {unknown[:4]}, which the state does not have; it has "
            f"{sorted(state)[:6]}."
        )


class _Fit(torch.autograd.Function):
    """The loop over steps: once for one client, and once for a stack of clients."""

    @staticmethod
    def forward(spec: Spec, *values: Tensor) -> tuple[Tensor, ...]:
        return tuple(one_client(spec, *rebuilt(spec.structure, values)))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing is kept: `fit` is not differentiated."""

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], spec: Spec, *values: Tensor
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        dims = in_dims[1:]
        rows = [v if d is None else v.movedim(d, 0) for v, d in zip(values, dims, strict=True)]
        stacked = [d is not None for d in dims]
        many = in_turn if current().mode == "loop" else at_once
        with at(rows[0].device):  # torch has left the context of the caller
            trained = many(spec, rows, stacked, info.batch_size)
        return tuple(trained), (0,) * len(trained)


class _MeanLoss(torch.autograd.Function):
    """The loop over batches without gradients, for one client or for a stack of clients."""

    @staticmethod
    def forward(task: Task, structure: tuple[State, Batches], *values: Tensor) -> Tensor:
        return _mean_loss(task, *rebuilt(structure, values))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing is kept: `mean_loss` is not differentiated."""

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[int | None, ...],
        task: Task,
        structure: tuple[State, Batches],
        *values: Tensor,
    ) -> tuple[Tensor, int]:
        def one(*own: Tensor) -> Tensor:
            return _mean_loss(task, *rebuilt(structure, own))

        dims = in_dims[2:]
        with at(values[0].device):
            if current().mode == "stack":
                return vmap(one, in_dims=dims)(*values), 0
            pairs = list(zip(values, dims, strict=True))
            losses = [
                one(*(v if d is None else v.select(d, i) for v, d in pairs))
                for i in range(info.batch_size)
            ]
            return torch.stack(losses), 0


def _mean_loss(task: Task, state: State, batches: Batches) -> Tensor:
    state = tree.tree_map(image_last, state)
    total, weight = torch.zeros(()), torch.zeros(())
    for batch in map(channels_last, batches.steps()):
        here = batch.weight.sum()
        total = total + _evaluation_loss(task, state, batch) * here
        weight = weight + here
    return total / weight.clamp(min=1)


def _evaluation_loss(task: Task, state: State, batch: Batch) -> Tensor:
    """Compute the loss by its program, if it has one."""

    def flat(*values: Tensor) -> list[Tensor]:
        return [task.evaluation_loss(*rebuilt((state, batch), values))]

    values = tree.leaves((state, batch))
    if not current().is_traced_for(len(batch.weight)) or not traceable(values):
        return task.evaluation_loss(state, batch)
    (loss,) = task.programs.get(("loss", tuple(state)), flat, values, donated=0).run(*values)
    return loss
