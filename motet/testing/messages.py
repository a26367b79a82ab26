"""What crosses the network, and what never does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from torch import Tensor

from motet import tree, wire
from motet.method import AnyMethod
from motet.reduce import Reduce
from motet.testing.comparing import require, require_alike, require_apart, require_same
from motet.testing.driving import next_work, started, states, trained, work_on
from motet.testing.worlds import World


def messages_survive_the_wire(method: AnyMethod, world: World) -> None:
    """Messages, down and up, are the same after a trip as bytes."""
    federated = trained(method, world, rounds=1, backend="serial")
    for client, work in next_work(federated):
        up, _ = work_on(federated, work)
        for name, message in (("down", work.down), ("up", up)):
            arrived = wire.from_bytes(message, wire.to_bytes(message))
            require_same(message, arrived, f"what goes {name} at {client}")


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


def a_kept_upload_is_a_copy(method: AnyMethod, world: World) -> None:
    """If a state is sent up and kept as well, it is kept as a copy."""
    federated = trained(method, world, rounds=1, backend="serial")
    for client, work in next_work(federated):
        up, kept = work_on(federated, work)
        federated.setting.store.put(client, kept)
        require_apart(federated.setting.store.get(client), up, f"{client} and its upload")


def private_names_stay_home(method: AnyMethod, world: World) -> None:
    """Names declared private (`private_names`) are neither sent nor known to the server."""
    if not hasattr(method, "private_names"):
        return
    private = method.private_names(world.task)
    federated = trained(method, world, rounds=1, backend="serial")
    sent = [federated.server]
    for _, work in next_work(federated):
        sent += [work.down, work_on(federated, work)[0]]
    for message in sent:
        leaked = [name for name in _names(message) if name in private]
        require(not leaked, f"expected {sorted(private)[:3]} to stay at home, but {leaked} left.")


def trees_keep_their_structure(method: AnyMethod, world: World) -> None:
    """Names, shapes and types of states and messages stay the same from round to round."""
    federated = started(method, world, backend="serial")
    before, messages = tree.clone(states(federated)), _messages(federated)
    for number in (1, 2):
        federated.advance()
        require_alike(before, states(federated), f"the states after round {number}")
        require_alike(messages, _messages(federated), f"the messages after round {number}")


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


def _messages(federated: Any) -> dict[str, Any]:
    return {c: {"down": w.down, "up": work_on(federated, w)[0]} for c, w in next_work(federated)}


def _names(message: Any) -> set[str]:
    """Name the tensors of a message as the model does, whatever slot they travel in."""
    return {tree.readable(path).rpartition("/")[2] for path, _ in tree.flatten(message)}


CHECKS = (
    messages_survive_the_wire,
    a_client_shares_no_memory,
    a_kept_upload_is_a_copy,
    private_names_stay_home,
    trees_keep_their_structure,
)
