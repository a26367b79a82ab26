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

from motet._core import tree
from motet._core.gradient import grad
from motet._core.tree import State
from motet._tracing.programs import traceable
from motet._training.batching import Batches
from motet._training.devices import at
from motet._training.execution import current
from motet._training.identity import loss_identity
from motet._training.stacked import at_once
from motet._training.stepping import Objective as Objective
from motet._training.stepping import (
    Spec,
    alone,
    channels_last,
    image_last,
    in_turn,
    one_client,
    rebuilt,
)
from motet.errors import StructureError
from motet.optim import Optimizer
from motet.task import Batch, Task


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

    A step is traced once and used again for every equal loss and optimizer, so both are compared by
    value: functions by their code and by what they capture, partials by their arguments, frozen
    dataclasses by their fields. Numbers, strings and tuples may be captured, and the task; tensors
    must come through `given`.

    Args:
        task: Says which entries are buffers, and is the default loss.
        state: Parameters and buffers; entries that are not trained come back as they went in, bit
            for bit.
        batches: The examples and the order to walk them.
        optimizer: Fresh moments are made for this call. One that cannot be compared by value works,
            but its steps are not traced.
        loss: `(state, batch, *given) -> Loss`; `task.loss` if None.
        train: Names that may change (parameters by gradient, buffers by the forward pass); all if
            None.
        given: Trees the loss needs besides the state: anchors, control variates, frozen models.

    Returns:
        The state after the last step.

    Raises:
        StructureError: `train` names something that the state does not have.
        CaptureError: The loss captures a tensor, or something else that cannot be compared by
            value.

    Example:
        >>> import motet
        >>> import torch
        >>> world = motet.testing.ragged()
        >>> state = world.task.init(motet.Key(0))
        >>> x, y = world.data.examples("few", "train")
        >>> rows, weight = torch.arange(7)[None], torch.ones(1, 7)  # one step
        >>> size, keys, rate = torch.tensor(7), torch.tensor([0]), torch.tensor(1.0)
        >>> one = Batches(x, y, size, rows, weight, keys, rate)
        >>> after = fit(world.task, state, one, motet.Sgd(lr=0.1), train={"head.bias"})
        >>> [name for name in state if not torch.equal(after[name], state[name])]
        ['head.bias']
    """
    names = frozenset(state if train is None else train)
    _check_known(names, state)
    buffers = {k: v for k, v in state.items() if task.is_buffer(k)}
    params = {k: v for k, v in state.items() if k in names and not task.is_buffer(k)}
    if not params:
        return state
    frozen = tree.drop(state, params.keys() | buffers.keys())
    structure = (params, buffers, frozen, batches, given)
    moving = names.intersection(buffers)
    loss = loss or task.loss
    spec = Spec(task, loss, optimizer, moving, structure, loss_identity(loss))
    apply: Callable[..., tuple[Tensor, ...]] = _Fit.apply  # torch leaves it untyped
    trained = apply(spec, *tree.leaves(spec.structure))
    new: tuple[State, State] = rebuilt((params, buffers), trained)
    return state | new[0] | new[1]


def mean_loss(task: Task, state: State, batches: Batches) -> Tensor:
    """Compute the mean loss over all examples, in evaluation mode; 0 without examples.

    A primitive as `fit` is, for the same reason; so there is no gradient through it.

    Args:
        task: The network and its loss.
        state: Parameters and buffers.
        batches: The examples.

    Returns:
        The mean, a tensor without dimensions.

    Example:
        >>> import torch
        >>> task = Task(build=lambda: torch.nn.Linear(1, 1, bias=False), loss="mse")
        >>> x, y = torch.tensor([[1.0], [2.0]]), torch.tensor([1.0, 4.0])
        >>> rows, weight = torch.tensor([[0, 1]]), torch.ones(1, 2)
        >>> size, keys, rate = torch.tensor(2), torch.tensor([0]), torch.tensor(1.0)
        >>> batches = Batches(x, y, size, rows, weight, keys, rate)
        >>> mean_loss(task, {"weight": torch.tensor([[1.0]])}, batches)
        tensor(2.)
    """
    apply: Callable[..., Tensor] = _MeanLoss.apply
    return apply(task, (state, batches), *tree.leaves((state, batches)))


def mean_gradient(task: Task, state: State, batches: Batches) -> State:
    """Compute the gradient of the mean loss over all examples, in training mode; 0 without any.

    Args:
        task: The network and its loss.
        state: Parameters and buffers.
        batches: The examples.

    Returns:
        The gradient, by name of the parameter.

    Example:
        >>> import torch
        >>> task = Task(build=lambda: torch.nn.Linear(1, 1, bias=False), loss="mse")
        >>> x, y = torch.tensor([[1.0], [2.0]]), torch.tensor([1.0, 4.0])
        >>> rows, weight = torch.tensor([[0, 1]]), torch.ones(1, 2)
        >>> size, keys, rate = torch.tensor(2), torch.tensor([0]), torch.tensor(1.0)
        >>> batches = Batches(x, y, size, rows, weight, keys, rate)
        >>> mean_gradient(task, {"weight": torch.tensor([[1.0]])}, batches)
        {'weight': tensor([[-4.]])}
    """
    params = {k: v for k, v in state.items() if not task.is_buffer(k)}
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
        walk = alone if current().mode == "loop" else one_client
        return tuple(walk(spec, *rebuilt(spec.structure, values)))

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
