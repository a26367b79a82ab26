"""Checks that a method's functions are pure: no argument changes, no global randomness is used."""

from __future__ import annotations

import io
import random
import socket
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, NoReturn
from unittest.mock import patch

import numpy as np
import torch

from motet._core import tree
from motet.method import AnyMethod
from motet.testing._comparing import ConformanceError, require, require_same
from motet.testing._driving import (
    next_info,
    next_work,
    predictions,
    started,
    states,
    trained,
    work_on,
)
from motet.testing._memory import changes, remembered
from motet.testing._promises import presupposes
from motet.testing._structure import everybody_is_served
from motet.testing._worlds import World


@presupposes(everybody_is_served)
def nothing_is_remembered_outside_the_states(method: AnyMethod, world: World) -> None:
    """States hold all there is: nothing is kept in the method, its class or its module."""
    before = remembered(method)
    predictions(trained(method, world, cohort=2, backend="serial"))
    for place in changes(before, remembered(method)):
        raise ConformanceError(
            f"expected `{place}` to stay as it was, but a run has changed it; keep it in the "
            "server's or the client's state."
        )


@presupposes(everybody_is_served)
def nothing_is_printed(method: AnyMethod, world: World) -> None:
    """Nothing is written to the screen, where commands print their results."""
    screen = io.StringIO()
    with redirect_stdout(screen), redirect_stderr(screen):
        predictions(trained(method, world, rounds=1, cohort=2, backend="serial"))
    require(
        not screen.getvalue(),
        f"expected no output, but {screen.getvalue()[:40]!r} was printed; use `notes` for what is "
        "worth knowing about a round.",
    )


@presupposes(everybody_is_served)
def no_connection_is_opened(method: AnyMethod, world: World) -> None:
    """Only the engine sends messages: a method connects to nothing."""

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise ConformanceError(
            "expected no connection, but one was opened; load what is needed before the run."
        )

    with patch.object(socket.socket, "connect", refuse):
        predictions(trained(method, world, rounds=1, cohort=2, backend="serial"))


@presupposes(everybody_is_served)
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


@presupposes(everybody_is_served)
def client_update_leaves_its_inputs_unchanged(method: AnyMethod, world: World) -> None:
    """`client_update` modifies neither the download, nor the client state, nor the data."""
    federated = trained(method, world, rounds=1, backend="serial")
    for client, work in next_work(federated):
        before = tree.clone(tuple(work))
        work_on(federated, work)
        require_same(before, tuple(work), f"(down, client, data) of {client}")


@presupposes(
    client_update_leaves_its_inputs_unchanged,
    nothing_is_remembered_outside_the_states,
    no_global_generator_is_used,
)
def client_update_is_repeatable(method: AnyMethod, world: World) -> None:
    """`client_update` returns the same, to the last bit, when it is given the same."""
    federated = trained(method, world, rounds=1, backend="serial")
    for client, work in next_work(federated):
        require_same(
            work_on(federated, work), work_on(federated, work), f"(up, client) of {client}"
        )


@presupposes(client_update_leaves_its_inputs_unchanged)
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


@presupposes(client_update_is_repeatable)
def a_stack_of_clients_runs_through(method: AnyMethod, world: World) -> None:
    """No decision in Python depends on the value of a tensor, so that clients can be stacked."""
    federated = started(method, world, rounds=1, cohort=0.5, backend="vectorized")
    predictions(federated)
    federated.advance()
    predictions(federated)
    for failure in federated.backend.failures:  # the work was done again, client by client
        raise failure


@presupposes(
    client_update_leaves_its_inputs_unchanged,
    server_functions_leave_the_server_unchanged,
    nothing_is_remembered_outside_the_states,
    no_global_generator_is_used,
)
def evaluating_changes_nothing(method: AnyMethod, world: World) -> None:
    """Two evaluations give the same table, and leave all states as they were."""
    federated = trained(method, world, cohort=0.5, backend="serial")
    before = tree.clone(states(federated))
    first, second = (federated.evaluate(split="val") for _ in range(2))
    require(
        repr(first) == repr(second), f"expected the same table twice, but {first} became {second}."
    )
    require_same(predictions(federated), predictions(federated), "two predictions")
    require_same(before, states(federated), "the states before and after evaluation")


@presupposes(
    client_update_is_repeatable, evaluating_changes_nothing, a_stack_of_clients_runs_through
)
def runs_are_repeatable(method: AnyMethod, world: World) -> None:
    """Two runs with one seed are equal to the last bit."""
    first, second = trained(method, world), trained(method, world)
    require_same(states(first), states(second), "the states of two runs with one seed")
    require_same(predictions(first), predictions(second), "the predictions of two equal runs")


CHECKS = (
    nothing_is_printed,
    no_connection_is_opened,
    nothing_is_remembered_outside_the_states,
    no_global_generator_is_used,
    client_update_leaves_its_inputs_unchanged,
    client_update_is_repeatable,
    a_stack_of_clients_runs_through,
    server_functions_leave_the_server_unchanged,
    evaluating_changes_nothing,
    runs_are_repeatable,
)
