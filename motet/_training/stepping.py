"""The loops over steps behind `fit`: for one client, and for a stack of clients in turn."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from motet._core import tree
from motet._core.gradient import grad_with_aux
from motet._core.tree import State
from motet._tracing.programs import Program, Step, run_all, traceable
from motet._training.batching import Batches
from motet._training.execution import current
from motet._training.identity import NoValueError, identity_of
from motet.errors import StructureError
from motet.optim import ExampleOptimizer, Optimizer
from motet.task import Batch, Loss, Task

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
        if not value.requires_grad:
            raise StructureError(
                f"the loss does not depend on {min(leaves)} and the {len(leaves) - 1} others that "
                "are trained here: forward does not use them. An adapter works only at a layer "
                "that forward calls."
            )
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
    loss_identity: Hashable  # equal for equal losses

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

        own = self._own_gradient
        grads, updated = own(objective, params, batch) if own else gradient(objective, params)
        stepped, moments = self.optimizer.step(grads, moments, params, rate)
        # In the old order, whatever an optimizer makes of it: `rebuilt` goes by position.
        return {k: stepped[k] for k in params}, buffers | updated, moments

    @cached_property  # asked in every step, and a protocol is slow to check
    def _own_gradient(self) -> Callable[..., tuple[State, State]] | None:
        optimizer = self.optimizer
        return optimizer.gradient if isinstance(optimizer, ExampleOptimizer) else None

    @cached_property
    def may_sum(self) -> bool:
        """Whether to differentiate the sum of a stack's losses in steps that run as written.

        It pays on a frozen base, whose passes are long.
        """
        task = self.task
        return bool(task.frozen) and not task.has_batch_statistics and self._own_gradient is None

    def width_for(self, rows: int, usual: int) -> int:
        """Say how many rows a batch with so many real ones gets."""
        return current().width_for(rows, usual) if self._own_gradient is None else usual

    @cached_property  # a walk may ask for several programs
    def identity(self) -> Hashable | None:
        """What a step computes, so that its program can be used again; None if unknown."""
        try:
            optimizer = identity_of(self.optimizer)
        except NoValueError as reason:
            kind = type(self.optimizer).__name__
            self.task.programs.say_once(
                f"the optimizer {kind} cannot be compared by value ({reason}), so its steps are "
                "not traced and run as they are written. Make it a frozen dataclass of numbers, "
                "and keep tensors in the moments that `init` returns."
            )
            return None
        names = tuple(path for path, _ in tree.flatten(self.structure))
        return (self.task.programs.token, self.loss_identity, optimizer, self.moving, names)


class Work(NamedTuple):
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


def alone(
    spec: Spec, params: State, buffers: State, frozen: State, batches: Batches, given: Any
) -> list[Tensor]:
    """Walk the active steps of one client, traced and laid out as the plan says."""
    # Detached: then memory that nobody but this fit holds is known by the count of its holders.
    moments = tree.tree_map(torch.detach, spec.optimizer.init(params))
    work = Work((params, buffers, moments), (frozen, given, batches.rate), batches)
    seen = traceable(tree.leaves((params, buffers, frozen, batches, given)))
    walk = _walk_one if seen else _walk_unseen
    # As states lie in memory elsewhere: not every operation under `vmap` takes channels last.
    return [leaf.contiguous() for leaf in walk(spec, _laid_out(work))]


def in_turn(spec: Spec, rows: list[Tensor], stacked: list[bool], clients: int) -> list[Tensor]:
    """Run a stack one client at a time: on a CPU, large convolutions are faster so."""
    results = []
    for client in range(clients):
        mine = [r[client] if s else r for r, s in zip(rows, stacked, strict=True)]
        results.append(alone(spec, *rebuilt(spec.structure, mine)))
    if clients == 1:
        return [leaf[None] for leaf in results[0]]  # no copy
    return [torch.stack(leaf) for leaf in zip(*results, strict=True)]


def _walk_one(spec: Spec, work: Work) -> list[Tensor]:
    def flat(*values: Tensor) -> list[Tensor]:
        changing, reading, batch = rebuilt((*work[:2], like), values)
        return tree.leaves(spec.step(*changing, *reading, batch, gradient=_by_autograd))

    batches, usual = work.batches, work.batches.weight.shape[-1]
    state, fixed = tree.leaves(work.changing), tree.leaves(work.reading)
    trained = len(tree.leaves(work.changing[:2]))
    like = Batch(batches.x, batches.y, batches.weight, batches.key)  # for its structure
    made: dict[int, Program] = {}  # by rows per batch

    def steps() -> Iterator[tuple[Program, list[Tensor]]]:
        for number, rows in enumerate(batches.weight.count_nonzero(-1).tolist()):
            if rows == 0:
                continue
            width = spec.width_for(rows, usual)
            rest = [*fixed, *channels_last(batches.resized(width).step(number))]
            if width not in made:
                values = [*state, *rest]
                made[width] = prepared(spec, "loop", flat, values, donated=len(state), width=width)
            yield made[width], rest

    return run_all(steps(), state, fresh=trained)[:trained]


def _walk_unseen(spec: Spec, work: Work) -> list[Tensor]:
    """Walk every step, and keep the active ones: inside another transform values cannot be read."""
    state, batches = work.changing, work.batches
    active = batches.weight.any(-1)
    for number, batch in enumerate(batches.steps()):
        state = tree.where(active[number], spec.step(*state, *work.reading, batch), state)
    return tree.leaves(state[:2])


def prepared(
    spec: Spec,
    what: Hashable,
    step: Step,
    values: Sequence[Tensor],
    *,
    donated: int,
    width: int,
    data: int | None = None,
    as_written: Step | None = None,
) -> Program:
    """Choose between a step and its program; `as_written` is the step as it runs untraced."""
    if not current().is_traced_for(width) or not traceable(values):
        return Program(as_written or step)
    if spec.identity is None:
        return Program(as_written or step)
    return spec.task.programs.get((what, spec.identity), step, values, donated=donated, data=data)


def _laid_out(work: Work) -> Work:
    return work._replace(changing=tree.tree_map(image_last, work.changing))


def channels_last(batch: Batch) -> Batch:
    """Lay a batch of images out as the network's convolutions like it best."""
    return batch._replace(x=image_last(batch.x))


def image_last(leaf: Tensor) -> Tensor:
    """Lay images, or the weights of a convolution, out with their channels last, if so planned."""
    if leaf.ndim != 4 or not current().channels_last:
        return leaf
    return leaf.contiguous(memory_format=torch.channels_last)


def rebuilt(structure: T, values: Iterable[Tensor]) -> T:
    """Put values into a structure, in the order of `tree.leaves`."""
    ordered = iter(values)
    return tree.tree_map(lambda _: next(ordered), structure)
