"""A method's functions take values and return values: they write nowhere, and draw from nowhere."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from motet import tree
from motet.method import AnyMethod
from motet.testing.comparing import require, require_same
from motet.testing.driving import (
    next_info,
    next_work,
    predictions,
    started,
    states,
    trained,
    work_on,
)
from motet.testing.worlds import World


def client_update_leaves_its_inputs_unchanged(method: AnyMethod, world: World) -> None:
    """`client_update` writes neither into what came down, nor into what it kept, nor the data."""
    federated = trained(method, world, rounds=1, backend="serial")
    for client, work in next_work(federated):
        before = tree.clone(tuple(work))
        work_on(federated, work)
        require_same(before, tuple(work), f"(down, client, data) of {client}")


def client_update_is_repeatable(method: AnyMethod, world: World) -> None:
    """`client_update` returns the same, to the last bit, when it is given the same."""
    federated = trained(method, world, rounds=1, backend="serial")
    for client, work in next_work(federated):
        require_same(
            work_on(federated, work), work_on(federated, work), f"(up, client) of {client}"
        )


def server_functions_leave_the_server_unchanged(method: AnyMethod, world: World) -> None:
    """`broadcast` and `server_update` return new states and leave the old one as it was."""
    federated = started(method, world, backend="serial")
    for _ in range(2):
        server = federated.server
        before = tree.clone(server)
        method.broadcast(server, next_info(federated))
        require_same(before, server, "the server's state after `broadcast`")
        federated.advance()
        require_same(before, server, "the server's old state after `server_update`")


def runs_are_repeatable(method: AnyMethod, world: World) -> None:
    """Two runs with one seed are equal to the last bit."""
    first, second = trained(method, world), trained(method, world)
    require_same(states(first), states(second), "the states of two runs with one seed")
    require_same(predictions(first), predictions(second), "the predictions of two equal runs")


def no_global_generator_is_used(method: AnyMethod, world: World) -> None:
    """All randomness comes from keys: the global generators stand where they stood before."""
    generators: dict[str, Callable[[], Any]] = {
        "torch's": lambda: torch.get_rng_state().tolist(),
        "numpy's": np.random.get_state,
        "Python's": random.getstate,
    }
    before = {name: repr(state()) for name, state in generators.items()}
    predictions(trained(method, world, cohort=2, backend="serial"))
    for name, state in generators.items():
        require(
            repr(state()) == before[name],
            f"expected {name} global generator to stay untouched, but it has moved; draw from a "
            "`Key` instead.",
        )


CHECKS = (
    client_update_leaves_its_inputs_unchanged,
    client_update_is_repeatable,
    server_functions_leave_the_server_unchanged,
    runs_are_repeatable,
    no_global_generator_is_used,
)
