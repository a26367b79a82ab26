"""The loop over steps for a stack of clients, or of models: every step is taken by all at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import vmap

from motet._core import tree
from motet._core.tree import State
from motet._tracing.pending import Deferring, Pending
from motet._tracing.programs import Program, Step, run_all, traceable
from motet._training.batching import Batches
from motet._training.stepping import Spec, Work, prepared, rebuilt
from motet.task import Batch


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
    work = Work((params, buffers, moments), (frozen, given, batches.rate), batches)
    return _walk(spec, work, _Deal(spec, batches, clients, own=own_data), dims)


def _walk(spec: Spec, work: Work, deal: _Deal, dims: tuple[Any, ...]) -> list[Tensor]:
    many = vmap(spec.step, in_dims=dims)

    def flat(*values: Tensor) -> list[Tensor]:
        changing, reading, batch = rebuilt((*work[:2], like), values)
        return tree.leaves(many(*changing, *reading, batch))

    def as_written(*values: Tensor) -> list[Tensor]:
        if not spec.may_sum or not traceable(values):
            return flat(*values)
        changing, reading, batch = rebuilt((*work[:2], like), values)
        return tree.leaves(_summed(spec, dims, *changing, *reading, batch))

    def where_active(step: Step) -> Step:
        def chosen(*values: Tensor) -> list[Tensor]:
            *others, active = values
            old = others[: len(state)]
            return [_chosen(active, new, o) for new, o in zip(step(*others), old, strict=True)]

        return chosen

    def program(turn: _Turn) -> Program:
        if turn[1:] not in made:
            batch = like if turn.width == deal.width else deal.batch(turn)
            made[turn[1:]] = prepared(
                spec,
                ("stack", turn.everybody, repr(dims)),
                flat if turn.everybody else where_active(flat),
                [*state, *fixed, *batch, *deal.who(turn)],
                donated=len(state),
                width=turn.width,
                data=len(state) + len(fixed) if deal.own else None,
                as_written=as_written if turn.everybody else where_active(as_written),
            )
        return made[turn[1:]]

    state, fixed = tree.leaves(work.changing), tree.leaves(work.reading)
    trained = len(tree.leaves(work.changing[:2]))
    if not deal.turns:
        return state[:trained]
    like = deal.batch(deal.turns[0])
    made: dict[tuple[bool, int], Program] = {}  # by whether everybody has examples, and the rows
    wide = {turn.everybody: program(turn) for turn in deal.turns}
    later = _deferring(wide, rows=len(deal.turns) * deal.width)
    if later is None:
        return _step_by_step(program, state, trained, fixed, deal)[:trained]
    return _with_weights_last(later, state, fixed, deal)[:trained]


def _summed(
    spec: Spec,
    dims: tuple[Any, ...],
    params: State,
    buffers: State,
    moments: Any,
    frozen: State,
    given: tuple[Any, ...],
    rate: Tensor,
    batch: Batch,
) -> tuple[State, State, Any]:
    """Take a step of all clients by one gradient, of the sum of their losses.

    Nobody's loss depends on another's parameters, and torch differentiates a sum faster than it
    stacks gradients.
    """

    def loss(params: State, buffers: State, frozen: State, given: Any, batch: Batch) -> Any:
        result = spec.loss(frozen | buffers | params, batch, *given)
        return result.value, tree.pick(result.buffers, spec.moving)

    leaves = {k: v.detach().requires_grad_() for k, v in params.items()}
    with torch.enable_grad():
        many = vmap(loss, in_dims=(0, 0, dims[3], dims[4], dims[6]))
        values, updated = many(leaves, buffers, frozen, given, batch)
        found = torch.autograd.grad(values.sum(), list(leaves.values()), materialize_grads=True)
    grads = dict(zip(leaves, found, strict=True))
    step = vmap(spec.optimizer.step, in_dims=(0, 0, 0, dims[5]))
    stepped, moments = step(grads, moments, params, rate)
    moved = buffers | tree.tree_map(torch.detach, updated)
    return {k: stepped[k] for k in params}, moved, moments


def _step_by_step(
    program: Callable[[_Turn], Program],
    state: list[Tensor],
    trained: int,
    fixed: list[Tensor],
    deal: _Deal,
) -> list[Tensor]:
    turns = map(deal.narrowed, deal.turns)
    steps = ((program(turn), (*fixed, *deal.batch(turn), *deal.who(turn))) for turn in turns)
    return run_all(steps, state, fresh=trained)


def _with_weights_last(
    programs: Mapping[bool, Deferring], state: list[Tensor], fixed: list[Tensor], deal: _Deal
) -> list[Tensor]:
    seen = deal.seen()
    layers = next(iter(programs.values())).layers
    pending = {one.place: Pending(one, state[one.place], seen, deal.width) for one in layers}
    state = [leaf if place in pending else leaf.clone() for place, leaf in enumerate(state)]
    for step, turn in enumerate(deal.turns):
        outputs = (layer.outputs(step) for layer in pending.values())
        rest = (*fixed, seen, *deal.labels(turn), *deal.who(turn), *outputs)
        state = list(programs[turn.everybody].run(*state, *rest))
        for place, layer in pending.items():
            layer.note(step, state[place])
    return [pending[n].weights() if n in pending else leaf for n, leaf in enumerate(state)]


def _deferring(programs: Mapping[bool, Program], rows: int) -> dict[bool, Deferring] | None:
    """Find programs that leave the same weights alone, if it pays for this many rows."""
    later = {kind: program.deferring for kind, program in programs.items() if program.deferring}
    layers = {program.layers for program in later.values()}
    if len(later) < len(programs) or len(layers) > 1:
        return None
    return later if all(layer.can_wait_for(rows) for layer in layers.pop()) else None


class _Turn(NamedTuple):
    """A step in which at least one client has an example."""

    number: int
    everybody: bool  # has one
    width: int  # rows


class _Deal:
    """The batches of a stack of clients, or of one client whose data a stack of models shares."""

    def __init__(self, spec: Spec, batches: Batches, clients: int, *, own: bool) -> None:
        self.own = own
        self._spec, self._clients = spec, clients
        usual = batches.weight.shape[-1]
        self._batches = batches.resized(spec.width_for(usual, usual))
        self._active = batches.weight.any(-1)  # [clients, steps] or [steps]

    @property
    def width(self) -> int:
        """Rows per batch."""
        return self._batches.weight.shape[-1]

    @cached_property
    def turns(self) -> list[_Turn]:
        """The steps to take."""
        active = self._active
        if not traceable([active]):  # values cannot be read while tracing
            steps = range(active.shape[-1])
            return [_Turn(number, everybody=False, width=self.width) for number in steps]
        some, every = (active.any(0), active.all(0)) if self.own else (active, active)
        return [
            _Turn(number, everybody, self.width)
            for number, (anybody, everybody) in enumerate(
                zip(some.tolist(), every.tolist(), strict=True)
            )
            if anybody
        ]

    def narrowed(self, turn: _Turn) -> _Turn:
        """Leave out filling that no client needs in this step."""
        rows = self._most_rows[turn.number] if self._most_rows else self.width
        return turn._replace(width=min(self.width, self._spec.width_for(rows, self.width)))

    @cached_property
    def _most_rows(self) -> list[int]:
        """How many real rows a step has, of the client that has most; nothing while tracing."""
        weight = self._batches.weight
        if not traceable([weight]):
            return []
        counts = weight.count_nonzero(-1)
        most: list[int] = (counts.amax(0) if self.own else counts).tolist()
        return most

    def batch(self, turn: _Turn) -> Batch:
        """Gather the examples of a step."""
        if not self.own:
            return self._batches.resized(turn.width).step(turn.number)
        x = _gathered(self._batches.x, self._rows[:, turn.number, : turn.width])
        return Batch(x, *self.labels(turn))

    def labels(self, turn: _Turn) -> tuple[Tensor, Tensor, Tensor]:
        """Gather what a step knows of its examples, less what a network sees of them."""
        b = self._batches
        y = _gathered(b.y, self._rows[:, turn.number, : turn.width])
        weight = b.weight[:, turn.number, : turn.width]
        # By themselves in memory: a program is made for certain strides.
        return y, weight.contiguous(), b.key[:, turn.number].contiguous()

    def seen(self) -> Tensor:
        """Gather what a network sees in all steps: [clients, rows, features]."""
        rows = self._rows[:, [turn.number for turn in self.turns]]
        return _gathered(self._batches.x, rows.flatten(1)).flatten(2)

    def who(self, turn: _Turn) -> tuple[Tensor, ...]:
        """Return which clients have examples in a step; None if all have."""
        if turn.everybody:
            return ()
        active = self._active[..., turn.number]
        return (active.contiguous() if self.own else active.expand(self._clients),)

    @cached_property
    def _rows(self) -> Tensor:
        """The rows of each step, numbered through the stack: one index is faster than two."""
        first = torch.arange(self._clients) * self._batches.x.shape[1]
        return self._batches.rows + first[:, None, None]


def _gathered(values: Tensor, rows: Tensor) -> Tensor:
    """Take rows of a stack [clients, examples, ...]."""
    taken = values.flatten(0, 1).index_select(0, rows.flatten())
    return taken.view(*rows.shape, *values.shape[2:])


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
