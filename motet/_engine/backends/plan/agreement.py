"""Whether a network computes the same in a stack, or with channels last, as it does by itself.

Two clients with different examples and different weights: their outputs and gradients are compared,
not the weights after a step. A small step would hide a wrong gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import vmap

from motet._core import tree
from motet._core.tree import State
from motet._engine.backends.stacking import stack_padded
from motet._training.batching import Batches
from motet._training.devices import run_on
from motet._training.execution import Execution, executing
from motet._training.fitting import fit
from motet.data._federation import Examples
from motet.errors import what_happened
from motet.task import Task

ROWS = 6  # more than examples are shown, so that some come twice: indices repeat
FEWER = 4  # of a client that is padded in a stack
NEGLIGIBLE = 0.01  # share of the largest gradient below which another one is mostly rounding
AMPLIFICATION = 10  # by which rounding may count for more in a stack than in the reference


class Case(NamedTuple):
    """A client's state and its examples."""

    state: State
    batches: Batches


class _Slopes:
    """An optimizer that returns the gradients themselves."""

    def init(self, params: State) -> State:
        """Keep nothing."""
        return {}

    def step(
        self, grads: State, moments: State, params: State, rate: Tensor | float
    ) -> tuple[State, State]:
        """Return the gradients in place of the new parameters."""
        dense = {k: leaf.to_dense() if leaf.is_sparse else leaf for k, leaf in grads.items()}
        return dense, moments


def cases(task: Task, initial: State, examples: Sequence[Examples]) -> list[Case]:
    """Make two clients that differ in weights, in the number of rows and, if there are two, data.

    Where a batch is normalised, only batches of one width are stacked.
    """
    fewer = ROWS if task.has_batch_statistics else FEWER
    last = examples[-1]
    turned = Examples(last.x.flip(0), last.y.flip(0))
    return [
        Case(_of_reals(lambda leaf: leaf * 0.9 + 0.01, initial), _batches(examples[0], ROWS)),
        Case(_of_reals(lambda leaf: leaf * 1.1 + 0.02, initial), _batches(turned, fewer)),
    ]


def why_not(task: Task, clients: Sequence[Case], execution: Execution, device: str) -> str:
    """Say in one line how a way to execute steps differs from clients by themselves, if it does."""
    if execution.mode == "loop":
        clients = clients[:1]  # who takes turns shares nothing with others
    try:
        expected = [_computed(task, case) for case in clients]
    except Exception:  # the method may never take such a step; what it does is compared elsewhere
        return ""
    try:
        with executing(execution):
            got = _executed(task, clients, execution, device)
    except Exception as reason:
        return what_happened(reason)
    for place, case in enumerate(clients):
        differing = _differing(got[place], expected[place])
        # Badly conditioned networks amplify rounding: as much as this one does by itself is right.
        if differing and _differing(got[place], expected[place], _shaken(task, case)):
            how = "in a stack" if execution.mode == "stack" else "with channels last"
            return f"the network's {differing} differ {how} from those of one client by itself"
    return ""


def _computed(task: Task, case: Case) -> dict[str, Any]:
    slopes = fit(task, case.state, case.batches, _Slopes())
    return {"outputs": task.outputs(case.state, case.batches.x), "gradients": slopes}


def _executed(
    task: Task, clients: Sequence[Case], execution: Execution, device: str
) -> list[dict[str, Any]]:
    def one(case: Case) -> dict[str, Any]:
        return _computed(task, case)

    if execution.mode == "loop":
        return [run_on(device, one, case) for case in clients]
    states, batches = zip(*clients, strict=True)
    many = Case(tree.stack(states), stack_padded([{"": own} for own in batches])[""])
    stacked = run_on(device, vmap(one), many)
    found = [tree.row(stacked, place) for place in range(len(clients))]
    return [
        own | {"outputs": own["outputs"][: len(case.batches.x)]}
        for own, case in zip(found, clients, strict=True)
    ]


def _differing(got: Any, expected: Any, shaken: Any = None) -> str:
    """Name what differs by more than rounding."""
    for what, wanted in expected.items():
        leaves = tree.leaves(wanted)
        sizes = [_largest(leaf) for leaf in leaves]
        negligible = NEGLIGIBLE * max(sizes, default=0.0)
        others = leaves if shaken is None else tree.leaves(shaken[what])
        mine = tree.leaves(got[what])
        for leaf, size, other, own in zip(leaves, sizes, others, mine, strict=True):
            allowed = _half_of_digits(leaf) * max(size, negligible)
            if other is not leaf:
                allowed += AMPLIFICATION * _gap(other, leaf)
            if _gap(own, leaf) > allowed:
                return str(what)
    return ""


def _half_of_digits(leaf: Tensor) -> float:
    return float(torch.finfo(leaf.dtype).eps ** 0.5) if leaf.is_floating_point() else 0.0


def _gap(a: Tensor, b: Tensor) -> float:
    """Return the largest difference; infinity where only one of them is a number."""
    gap = _inf_norm(a - b) if a.is_floating_point() else math.nan
    if not math.isnan(gap):
        return gap
    a, b = a.double(), b.double()
    same = (a == b) | (a.isnan() & b.isnan())
    return _inf_norm((a - b).nan_to_num(nan=math.inf, posinf=math.inf).masked_fill(same, 0.0))


def _largest(leaf: Tensor) -> float:
    """Return the largest number, leaving out what is none."""
    largest = _inf_norm(leaf) if leaf.is_floating_point() else math.nan
    return largest if math.isfinite(largest) else _inf_norm(leaf.double().nan_to_num(0, 0, 0))


def _inf_norm(leaf: Tensor) -> float:
    return float(torch.linalg.vector_norm(leaf.detach(), math.inf)) if leaf.numel() else 0.0


def _shaken(task: Task, case: Case) -> dict[str, Any]:
    """Compute the same from weights that are a few roundings away."""

    def shake(leaf: Tensor) -> Tensor:
        signs = (torch.arange(leaf.numel(), device=leaf.device) % 3 - 1).view(leaf.shape)
        return leaf * (1 + 8 * torch.finfo(leaf.dtype).eps * signs.to(leaf.dtype))

    return _computed(task, case._replace(state=_of_reals(shake, case.state)))


def _of_reals(change: Callable[[Tensor], Tensor], state: State) -> State:
    return {k: change(leaf) if leaf.is_floating_point() else leaf for k, leaf in state.items()}


def _batches(examples: Examples, count: int) -> Batches:
    """Make one step of so many rows; if there are fewer examples, the first ones come again."""
    rows = torch.arange(count)
    taken = rows % len(examples.y)
    return Batches(
        x=examples.x[taken],
        y=examples.y[taken],
        size=torch.tensor(count),
        rows=rows[None],
        weight=torch.ones(1, count),
        key=torch.tensor([1]),
        rate=torch.tensor(1.0),
    )
