"""The server's own optimizer: the averaged change of a cohort, taken as a gradient.

Reddi et al., "Adaptive Federated Optimization", ICLR 2021. https://arxiv.org/abs/2003.00295
"""

from __future__ import annotations

from motet._core import tree
from motet._core.tree import State
from motet.optim import Optimizer
from motet.task import Task

SLOT = "moments"  # where the optimizer's moments live in the server's state


def first_moments(optimizer: Optimizer | None, shared: State, task: Task) -> State:
    """Make the optimizer's moments, as entries of the server's state."""
    if optimizer is None:
        return {}
    return tree.prefixed(SLOT, dict(tree.flatten(optimizer.init(_moving(shared, task)))))


def shared_part(server: State) -> State:
    """Leave the moments out: they never travel."""
    return {k: v for k, v in server.items() if not k.startswith(f"{SLOT}/")}


def server_step(optimizer: Optimizer | None, server: State, mean: State, task: Task) -> State:
    """Step on `old - mean`. Buffers take no step: they become the mean."""
    if optimizer is None or not mean:
        return mean
    old, target = _moving(shared_part(server), task), _moving(mean, task)
    template = optimizer.init(old)
    moments = tree.unflatten(template, tree.slot(SLOT, server))
    stepped, moments = optimizer.step(tree.subtract(old, target), moments, old, 1.0)
    return mean | stepped | tree.prefixed(SLOT, dict(tree.flatten(moments)))


def _moving(state: State, task: Task) -> State:
    return {k: v for k, v in state.items() if not task.is_buffer(k)}
