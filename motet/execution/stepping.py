"""The loops over steps behind `fit`: for one client, for a stack in turn, for a stack at once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.func import vmap

from motet import tree
from motet.execution.choice import current
from motet.execution.programs import Step, traceable
from motet.gradient import grad_with_aux
from motet.optim import Optimizer
from motet.plans import Batches
from motet.task import Batch, Loss, Task
from motet.tree import State

T = TypeVar("T")
Objective = Callable[..., Loss]  # (state, batch, *given) -> Loss
Scored = Callable[[State], tuple[Tensor, State]]  # parameters -> the loss, and updated buffers
Gradient = Callable[[Scored, State], tuple[State, State]]


def _by_transform(objective: Scored, params: State) -> tuple[State, State]:
    """Differentiate under any transform."""
    return grad_with_aux(objective, params)


def _by_autograd(objective: Scored, params: State) -> tuple[State, State]:
    """Differentiate outside of transforms: faster, and torch's own kernels for recurrent layers."""
    leaves = {k: v.detach().requires_grad_() for k, v in params.items()}
    with torch.enable_grad():
        value, updated = objective(leaves)
        grads = torch.autograd.grad(value, list(leaves.values()), materialize_grads=True)
    return dict(zip(leaves, grads, strict=True)), tree.tree_map(torch.detach, updated)


@dataclass(frozen=True)
class Spec:
    """What `fit` was asked to do, less the tensors: the structure only names and orders them."""

    task: Task
    loss: Objective
    optimizer: Optimizer
    moving: frozenset[str]  # the buffers that the forward pass may update
    structure: tuple[State, State, State, Batches, tuple[Any, ...]]

    def step(
        self,
        params: State,
        buffers: State,
        moments: Any,
        frozen: State,
        given: tuple[Any, ...],
        rate: Tensor,
        batch: Batch,
        *,
        gradient: Gradient = _by_transform,
    ) -> tuple[State, State, Any]:
        """Take one optimizer step on one batch."""

        def objective(trained: State, seen: Batch = batch) -> tuple[Tensor, State]:
            result = self.loss(frozen | buffers | trained, seen, *given)
            return result.value, tree.pick(result.buffers, self.moving)

        # An optimizer may have a way of its own from examples to a gradient.
        own = getattr(self.optimizer, "gradient", None)
        grads, updated = own(objective, params, batch) if own else gradient(objective, params)
        stepped, moments = self.optimizer.step(grads, moments, params, rate)
        # In the old order, whatever an optimizer makes of it: `rebuilt` goes by position.
        return {k: stepped[k] for k in params}, buffers | updated, moments

    def identity(self) -> Hashable | None:
        """Say what a step computes, so that its program can be used again; None if nobody can."""
        loss: Any = self.loss
        if getattr(loss, "__self__", None) is self.task:
            loss = loss.__func__  # the same for every copy of a task
        names = tuple(path for path, _ in tree.flatten(self.structure))
        identity = (loss, self.optimizer, self.moving, names)
        try:
            hash(identity)
        except TypeError:
            return None
        return identity


class _Work(NamedTuple):
    """A fit, taken apart into what steps change and what they only read."""

    changing: tuple[State, State, Any]  # parameters, buffers, moments
    reading: tuple[State, tuple[Any, ...], Tensor]  # frozen, given, rate
    batches: Batches


def one_client(
    spec: Spec, params: State, buffers: State, frozen: State, batches: Batches, given: Any
) -> list[Tensor]:
    """Walk the active steps of one client, as they are written."""
    state = (params, buffers, spec.optimizer.init(params))
    plain = traceable(tree.leaves((params, buffers, frozen, batches, given)))
    gradient = _by_autograd if plain else _by_transform
    for number in batches.weight.any(-1).nonzero().flatten().tolist():
        batch = batches.step(number)
        state = spec.step(*state, frozen, given, batches.rate, batch, gradient=gradient)
    return tree.leaves(state[:2])


def in_turn(spec: Spec, rows: list[Tensor], stacked: list[bool], clients: int) -> list[Tensor]:
    """Run a stack one client at a time: on a CPU, large convolutions are faster so."""
    results = []
    for client in range(clients):
        mine = [r[client] if s else r for r, s in zip(rows, stacked, strict=True)]
        params, buffers, frozen, batches, given = rebuilt(spec.structure, mine)
        moments = spec.optimizer.init(params)
        work = _Work((params, buffers, moments), (frozen, given, batches.rate), batches)
        walk = _walk_one if traceable(mine) else _walk_unseen
        results.append(walk(spec, _laid_out(work)))
    if clients == 1:
        return [leaf[None] for leaf in results[0]]  # no copy
    return [torch.stack(leaf) for leaf in zip(*results, strict=True)]


def at_once(spec: Spec, rows: list[Tensor], stacked: list[bool], clients: int) -> list[Tensor]:
    """Run a stack as one: every step is a batched step of all clients."""
    values = rebuilt(spec.structure, rows)
    flags = rebuilt(spec.structure, [torch.tensor(s, device="cpu") for s in stacked])

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
    moments = vmap(spec.optimizer.init)(params)
    data_dim = 0 if own_data else None
    dims = (0, 0, 0, _in_dims(flags[2]), _in_dims(flags[4]), data_dim, data_dim)
    work = _Work((params, buffers, moments), (frozen, given, batches.rate), batches)
    walk = _StackedWalk(batches, own_data, clients)
    return _walk_stack(spec, work, walk, vmap(spec.step, in_dims=dims), dims)


def _walk_one(spec: Spec, work: _Work) -> list[Tensor]:
    def flat(*values: Tensor) -> list[Tensor]:
        changing, reading, batch = rebuilt((*work[:2], like), values)
        return tree.leaves(spec.step(*changing, *reading, batch, gradient=_by_autograd))

    batches = work.batches
    state, fixed = tree.leaves(work.changing), tree.leaves(work.reading)
    step: Step | None = None
    for number in batches.weight.any(-1).nonzero().flatten().tolist():
        like = channels_last(batches.step(number))
        if step is None:
            state, step = _prepared(
                spec, "loop", flat, state, [*fixed, *like], width=len(like.weight), owned=False
            )
        state = list(step(*state, *fixed, *like))
    return state[: len(tree.leaves(work.changing[:2]))]


def _walk_unseen(spec: Spec, work: _Work) -> list[Tensor]:
    """Walk every step, and keep the active ones: inside another transform nobody can look."""
    state, batches = work.changing, work.batches
    active = batches.weight.any(-1)
    for number, batch in enumerate(batches.steps()):
        state = tree.where(active[number], spec.step(*state, *work.reading, batch), state)
    return tree.leaves(state[:2])


def _walk_stack(
    spec: Spec, work: _Work, walk: _StackedWalk, many: Callable[..., Any], dims: tuple[Any, ...]
) -> list[Tensor]:
    def flat(*values: Tensor) -> list[Tensor]:
        changing, reading, batch = rebuilt((*work[:2], like), values)
        return tree.leaves(many(*changing, *reading, batch))

    def flat_where_active(*values: Tensor) -> list[Tensor]:
        *others, active = values
        old = others[: len(state)]
        return [_chosen(active, new, o) for new, o in zip(flat(*others), old, strict=True)]

    state, fixed = tree.leaves(work.changing), tree.leaves(work.reading)
    steps: dict[bool, Step] = {}
    for number in walk.active_steps():
        like, active = walk.step(number)
        everybody = traceable([active]) and bool(active.all())
        rest = [*fixed, *like] if everybody else [*fixed, *like, active]
        if everybody not in steps:
            chosen = flat if everybody else flat_where_active
            what = ("stack", everybody, repr(dims))
            width = like.weight.shape[-1]
            state, steps[everybody] = _prepared(
                spec, what, chosen, state, rest, width=width, owned=bool(steps)
            )
        state = list(steps[everybody](*state, *rest))
    return state[: len(tree.leaves(work.changing[:2]))]


def _prepared(
    spec: Spec,
    what: Hashable,
    step: Step,
    state: list[Tensor],
    rest: Sequence[Tensor],
    *,
    width: int,
    owned: bool,
) -> tuple[list[Tensor], Step]:
    """Choose between a step and its program; a program may write into the state it is given."""
    execution, identity = current(), spec.identity()
    wanted = execution.traced and width in execution.widths and identity is not None
    if not wanted or not traceable([*state, *rest]):
        return state, step
    if not owned:
        state = [leaf.clone(memory_format=torch.preserve_format) for leaf in state]
    program = spec.task.programs.get((what, identity), step, [*state, *rest], donated=len(state))
    return state, program


def _laid_out(work: _Work) -> _Work:
    return work._replace(changing=tree.tree_map(image_last, work.changing))


def channels_last(batch: Batch) -> Batch:
    """Lay a batch of images out as the network's convolutions like it best."""
    return batch._replace(x=image_last(batch.x))


def image_last(leaf: Tensor) -> Tensor:
    """Lay images, or the weights of a convolution, out with their channels last, if so planned."""
    if leaf.ndim != 4 or not current().channels_last:
        return leaf
    return leaf.contiguous(memory_format=torch.channels_last)


@dataclass
class _StackedWalk:
    """The steps of a stack of clients, or of a stack of models that share one client's data."""

    batches: Batches
    stacked: bool
    clients: int

    def active_steps(self) -> list[int]:
        """List the steps in which anybody has an example; all, where nobody can look."""
        active = self.batches.weight.any(-1)  # [clients, steps] or [steps]
        if not traceable([active]):
            return list(range(active.shape[-1]))
        numbers: list[int] = (active.any(0) if self.stacked else active).nonzero()[:, 0].tolist()
        return numbers

    def step(self, number: int) -> tuple[Batch, Tensor]:
        """Gather the examples of a step, and say who has any."""
        if not self.stacked:
            batch = self.batches.step(number)
            return batch, batch.weight.any().expand(self.clients)
        b = self.batches
        rows = b.rows[:, number]  # [clients, batch]
        flat = (rows + torch.arange(self.clients)[:, None] * b.x.shape[1]).flatten()
        x, y = (_gathered(values, flat, rows.shape) for values in (b.x, b.y))
        batch = Batch(x, y, b.weight[:, number], b.key[:, number])
        return batch, batch.weight.any(-1)


def _gathered(values: Tensor, flat: Tensor, shape: torch.Size) -> Tensor:
    """Take rows of a stack [clients, examples, ...]; one flat index is faster than two."""
    return values.flatten(0, 1).index_select(0, flat).view(*shape, *values.shape[2:])


def rebuilt(structure: T, values: Iterable[Tensor]) -> T:
    """Put values into a structure, in the order of `tree.leaves`."""
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


def _chosen(active: Tensor, yes: Tensor, no: Tensor) -> Tensor:
    return torch.where(active.view(-1, *[1] * (yes.ndim - 1)), yes, no)
