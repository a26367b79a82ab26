"""Checks of messages: what crosses the network, and what never does."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable
from unittest.mock import patch

from torch import Tensor

from motet._core import tree, wire
from motet._core.aggregation.mean import Reduce
from motet.method import AnyMethod
from motet.task import Task
from motet.testing._comparing import require, require_apart, require_same
from motet.testing._driving import next_work, trained, work_on
from motet.testing._promises import presupposes
from motet.testing._purity import a_stack_of_clients_runs_through, client_update_is_repeatable
from motet.testing._worlds import World


@runtime_checkable
class DeclaresPrivateNames(Protocol):
    """A method that names what never leaves a client."""

    def private_names(self, task: Task) -> Collection[str]:
        """Names of parameters and buffers that stay at home."""


@presupposes(client_update_is_repeatable)
def messages_survive_the_wire(method: AnyMethod, world: World) -> None:
    """Messages, down and up, are the same after a trip as bytes."""
    federated = trained(method, world, rounds=1, backend="serial")
    for client, work in next_work(federated):
        up, _ = work_on(federated, work)
        for name, message in (("down", work.down), ("up", up)):
            arrived = wire.from_bytes(message, wire.to_bytes(message))
            require_same(message, arrived, f"what goes {name} at {client}")


@presupposes(client_update_is_repeatable, a_stack_of_clients_runs_through)
def a_client_shares_no_memory(method: AnyMethod, world: World) -> None:
    """No array that a client keeps is also in an upload, at the server or at another client."""
    for backend in ("serial", "vectorized") if method.vectorizable else ("serial",):
        with _recorded_uploads(method.reduce) as uploads:
            federated = trained(method, world, backend=backend)
        store = federated.setting.store
        for client in store:
            others = tuple(store.get(other) for other in store if other != client)
            require_apart(store.get(client), tuple(uploads), f"{client} and the uploads")
            require_apart(store.get(client), federated.server, f"{client} and the server")
            require_apart(store.get(client), others, f"{client} and other clients")


@presupposes(client_update_is_repeatable)
def a_kept_upload_is_a_copy(method: AnyMethod, world: World) -> None:
    """If a state is sent up and kept as well, it is kept as a copy."""
    federated = trained(method, world, rounds=1, backend="serial")
    for client, work in next_work(federated):
        up, kept = work_on(federated, work)
        federated.setting.store.put(client, kept)
        require_apart(federated.setting.store.get(client), up, f"{client} and its upload")


@presupposes(client_update_is_repeatable)
def private_names_stay_home(method: AnyMethod, world: World) -> None:
    """Names declared private (`private_names`) are neither sent nor known to the server."""
    if not isinstance(method, DeclaresPrivateNames):
        return
    private = method.private_names(world.task)
    federated = trained(method, world, rounds=1, backend="serial")
    sent = [federated.server]
    for _, work in next_work(federated):
        sent += [work.down, work_on(federated, work)[0]]
    for message in sent:
        leaked = [name for name in _names(message) if name in private]
        require(not leaked, f"expected {sorted(private)[:3]} to stay at home, but {leaked} left.")


@contextmanager
def _recorded_uploads(reduce: Reduce) -> Iterator[list[Any]]:
    """Listen to a reduction, and remember the uploads it was handed."""
    seen: list[Any] = []
    lift = type(reduce).lift

    def listening(self: Reduce, clients: Sequence[str], uploads: Any, weights: Tensor) -> Any:
        seen.append(uploads)
        return lift(self, clients, uploads, weights)

    with patch.object(type(reduce), "lift", listening):
        yield seen


def _names(message: Any) -> set[str]:
    """Name the tensors of a message as the model does, whatever slot they travel in."""
    return {tree.readable(path).rpartition("/")[2] for path, _ in tree.flatten(message)}


CHECKS = (
    messages_survive_the_wire,
    a_client_shares_no_memory,
    a_kept_upload_is_a_copy,
    private_names_stay_home,
)
