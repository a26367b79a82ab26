"""`fit`, the one local training loop.

`fit` is a primitive: what the loss needs is an explicit argument, never captured. So a method reads
as straight-line code for one client, and a backend that has stacked a cohort may run its own
stacked step loop instead (docs/decisions/0002-fit-is-a-primitive.md).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor
from torch.func import grad, vmap

from motet import tree
from motet.errors import StructureError
from motet.optim import Optimizer
from motet.plans import Batches
from motet.task import Batch, Loss, Task
from motet.tree import State

T = TypeVar("T")
Objective = Callable[..., Loss]  # (state, batch, *given) -> Loss


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
    spec = _Spec(loss or task.loss, optimizer, names & buffers.keys(), structure)
    apply: Callable[..., tuple[Tensor, ...]] = _Fit.apply  # torch leaves it untyped
    trained = apply(spec, *tree.leaves(spec.structure))
    new: tuple[State, State] = spec.rebuild((params, buffers), trained)
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


@dataclass(frozen=True)
class _Spec:
    """What `fit` was asked to do, less the tensors: the structure only names and orders them."""

    loss: Objective
    optimizer: Optimizer
    moving: frozenset[str]  # the buffers that the forward pass may update
    structure: tuple[State, State, State, Batches, tuple[Any, ...]]

    def rebuild(self, template: T, values: Iterable[Any]) -> T:
        return _rebuild(template, values)

    def step(
        self,
        params: State,
        buffers: State,
        moments: Any,
        frozen: State,
        batch: Batch,
        rate: Tensor,
        given: tuple[Any, ...],
    ) -> tuple[State, State, Any]:
        def objective(trained: State) -> tuple[Tensor, State]:
            result = self.loss(frozen | buffers | trained, batch, *given)
            return result.value, tree.pick(result.buffers, self.moving)

        grads, updated = grad(objective, has_aux=True)(params)
        stepped, moments = self.optimizer.step(grads, moments, params, rate)
        # In the old order, whatever an optimizer makes of it: `rebuild` goes by position.
        return {k: stepped[k] for k in params}, buffers | updated, moments


Mode = Literal["stack", "loop"]
STACKED_MODE: ContextVar[Mode] = ContextVar("STACKED_MODE", default="stack")


class _Fit(torch.autograd.Function):
    """The loop over steps: once for one client, and once for a stack of clients."""

    @staticmethod
    def forward(spec: _Spec, *values: Tensor) -> tuple[Tensor, ...]:
        return tuple(_one_client(spec, *spec.rebuild(spec.structure, values)))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing is kept: `fit` is not differentiated."""

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], spec: _Spec, *values: Tensor
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        dims = in_dims[1:]
        rows = [v if d is None else v.movedim(d, 0) for v, d in zip(values, dims, strict=True)]
        stacked = [d is not None for d in dims]
        many = _clients_in_turn if STACKED_MODE.get() == "loop" else _clients_at_once
        trained = many(spec, rows, stacked, info.batch_size)
        return tuple(trained), (0,) * len(trained)


def _one_client(
    spec: _Spec, params: State, buffers: State, frozen: State, batches: Batches, given: Any
) -> list[Tensor]:
    moments = spec.optimizer.init(params)
    for number in batches.weight.any(-1).nonzero().flatten().tolist():  # the active steps
        params, buffers, moments = spec.step(
            params, buffers, moments, frozen, batches.step(number), batches.rate, given
        )
    return tree.leaves((params, buffers))


def _clients_in_turn(
    spec: _Spec, rows: list[Tensor], stacked: list[bool], clients: int
) -> list[Tensor]:
    """Run a stack one client at a time: on a CPU, large convolutions are faster so."""
    results = []
    for client in range(clients):
        mine = [r[client] if s else r for r, s in zip(rows, stacked, strict=True)]
        params, buffers, frozen, batches, given = spec.rebuild(spec.structure, mine)
        active = batches.weight.any(-1)  # [steps], inactive ones at the end
        moments = spec.optimizer.init(params)
        for number, batch in enumerate(batches.steps()):
            stepped = spec.step(params, buffers, moments, frozen, batch, batches.rate, given)
            params, buffers, moments = tree.where(
                active[number], stepped, (params, buffers, moments)
            )
        results.append(tree.leaves((params, buffers)))
    return [torch.stack(leaf) for leaf in zip(*results, strict=True)]


def _clients_at_once(
    spec: _Spec, rows: list[Tensor], stacked: list[bool], clients: int
) -> list[Tensor]:
    """Run a stack as one: every step is a batched step of all clients."""
    values = spec.rebuild(spec.structure, rows)
    flags = spec.rebuild(spec.structure, [torch.tensor(s) for s in stacked])

    def expand(value: Tensor, flag: Tensor) -> Tensor:
        return value if bool(flag) else value.expand(clients, *value.shape)

    params, buffers = (
        tree.tree_map(expand, v, f) for v, f in zip(values[:2], flags[:2], strict=True)
    )
    frozen, batches, given = values[2:]
    # Data are each client's own, or shared by a stack of models; half and half is a client's own.
    own_data = any(bool(flag) for flag in flags[3])
    if own_data:
        batches = Batches(*(expand(v, s) for v, s in zip(batches, flags[3], strict=True)))
    data_dim = 0 if own_data else None
    in_dims = (0, 0, 0, _in_dims(flags[2]), data_dim, data_dim, _in_dims(flags[4]))
    step = vmap(spec.step, in_dims=in_dims)
    moments = vmap(spec.optimizer.init)(params) if params else {}
    walk = _StackedWalk(batches, own_data, clients)
    for number in range(walk.steps):
        batch, active = walk.step(number)
        stepped = step(params, buffers, moments, frozen, batch, batches.rate, given)
        params, buffers, moments = _where_rows(active, stepped, (params, buffers, moments))
    return tree.leaves((params, buffers))


@dataclass
class _StackedWalk:
    """The steps of a stack of clients, or of a stack of models that share one client's data."""

    batches: Batches
    stacked: bool
    clients: int

    @property
    def steps(self) -> int:
        return self.batches.rows.shape[1 if self.stacked else 0]

    def step(self, number: int) -> tuple[Batch, Tensor]:
        if not self.stacked:
            batch = self.batches.step(number)
            return batch, batch.weight.any().expand(self.clients)
        b = self.batches
        which = torch.arange(self.clients)[:, None]
        index = b.rows[:, number]  # [clients, batch]
        batch = Batch(b.x[which, index], b.y[which, index], b.weight[:, number], b.key[:, number])
        return batch, batch.weight.any(-1)


class _MeanLoss(torch.autograd.Function):
    """The loop over batches without gradients, for one client or for a stack of clients."""

    @staticmethod
    def forward(task: Task, structure: tuple[State, Batches], *values: Tensor) -> Tensor:
        return _mean_loss(task, *_rebuild(structure, values))

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
            return _mean_loss(task, *_rebuild(structure, own))

        dims = in_dims[2:]
        if STACKED_MODE.get() == "stack":
            return vmap(one, in_dims=dims)(*values), 0
        losses = [
            one(*(v if d is None else v.select(d, i) for v, d in zip(values, dims, strict=True)))
            for i in range(info.batch_size)
        ]
        return torch.stack(losses), 0


def _mean_loss(task: Task, state: State, batches: Batches) -> Tensor:
    total, weight = torch.zeros(()), torch.zeros(())
    for batch in batches.steps():
        here = batch.weight.sum()
        total = total + task.evaluation_loss(state, batch) * here
        weight = weight + here
    return total / weight.clamp(min=1)


def _rebuild(structure: T, values: Iterable[Tensor]) -> T:
    ordered = iter(values)
    return tree.tree_map(lambda _: next(ordered), structure)


def _in_dims(flags: Any) -> Any:
    """Turn a tree of "is stacked" flags into vmap's in_dims (which are not tensors)."""
    if isinstance(flags, Tensor):
        return 0 if bool(flags) else None
    if isinstance(flags, dict):
        return {k: _in_dims(v) for k, v in flags.items()}
    values = [_in_dims(v) for v in flags]
    return type(flags)(*values) if hasattr(flags, "_fields") else tuple(values)


def _where_rows(active: Tensor, yes: Any, no: Any) -> Any:
    def choose(a: Tensor, b: Tensor) -> Tensor:
        return torch.where(active.view(-1, *[1] * (a.ndim - 1)), a, b)

    return tree.tree_map(choose, yes, no)
