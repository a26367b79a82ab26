"""Checks that all others presuppose: nothing captured, trees of tensors, rounds that end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

from torch import Tensor

from motet._core import tree
from motet._engine.federation import Run
from motet._engine.run_spec import down_for
from motet._training import fitting
from motet._training.identity import globals_read, holds_tensors, loss_identity
from motet.errors import CaptureError
from motet.method import AnyMethod
from motet.testing._comparing import ConformanceError, require, require_alike
from motet.testing._declaration import no_field_holds_a_tensor
from motet.testing._driving import next_info, next_work, predictions, started, states, work_on
from motet.testing._promises import presupposes
from motet.testing._worlds import World


@presupposes(no_field_holds_a_tensor)
def no_tensor_is_captured(method: AnyMethod, world: World) -> None:
    """Losses get their tensors through `given`: they capture none, and read no global one."""
    with _losses_seen() as losses:
        try:
            federated = started(method, world, rounds=1, backend="serial")
            predictions(federated)  # of clients that never trained
            federated.advance()
            predictions(federated)
        except CaptureError as reason:
            raise ConformanceError(str(reason)) from reason
        except Exception:  # other checks say what it is
            pass
    for loss in losses:
        for name in _global_tensors(loss):
            raise ConformanceError(
                f"expected the loss to read no global tensor, but it reads `{name}`; hand it over: "
                f"fit(..., given=({name},))."
            )


@presupposes(no_tensor_is_captured)
def a_round_runs_through_on_trees_of_tensors(method: AnyMethod, world: World) -> None:
    """One round runs through, and all states and messages are trees of tensors."""
    with _initial_states_seen(method):
        federated = started(method, world, backend="serial")
    down = method.broadcast(federated.server, next_info(federated))
    for client in sorted(federated.clients):
        _require_tree(down_for(down, client), f"what `broadcast` sends to {client}")
    for client, work in next_work(federated):
        up, kept = work_on(federated, work)
        _require_tree(up, f"the upload of {client}")
        _require_tree(kept, f"what {client} keeps")
    federated.advance()
    _require_tree(federated.server, "the server's state")


@presupposes(a_round_runs_through_on_trees_of_tensors)
def trees_keep_their_structure(method: AnyMethod, world: World) -> None:
    """Names, shapes and types of states and messages stay the same from round to round."""
    federated = started(method, world, backend="serial")
    before, messages = tree.clone(states(federated)), _messages(federated)
    for number in (1, 2):
        federated.advance()
        require_alike(before, states(federated), f"the states after round {number}")
        require_alike(messages, _messages(federated), f"the messages after round {number}")


@presupposes(trees_keep_their_structure)
def everybody_is_served(method: AnyMethod, world: World) -> None:
    """Every client gets predictions, whether it has trained or not."""
    federated = started(method, world, cohort=0.5, backend="serial")
    predictions(federated)
    federated.advance()
    predictions(federated)


def _messages(federated: Run) -> dict[str, Any]:
    return {c: {"down": w.down, "up": work_on(federated, w)[0]} for c, w in next_work(federated)}


@contextmanager
def _losses_seen() -> Iterator[list[Callable[..., Any]]]:
    seen: list[Callable[..., Any]] = []

    def spy(loss: Callable[..., Any]) -> Any:
        seen.append(loss)
        return loss_identity(loss)

    with patch.object(fitting, "loss_identity", spy):
        yield seen


def _global_tensors(loss: Any) -> list[str]:
    while isinstance(loss, partial):
        loss = loss.func
    function = getattr(loss, "__func__", loss)
    if not hasattr(function, "__code__"):
        function = getattr(type(loss).__call__, "__wrapped__", type(loss).__call__)
    scope = getattr(function, "__globals__", {})
    names = globals_read(function.__code__) if hasattr(function, "__code__") else ()
    return [name for name in names if holds_tensors(scope.get(name))]


@contextmanager
def _initial_states_seen(method: AnyMethod) -> Iterator[None]:
    """Look at initial states before the engine does, whose errors do not say whose they are."""
    kind = type(method)

    def looking(name: str) -> Callable[..., Any]:
        def look(self: AnyMethod, *given: Any) -> Any:
            made = original[name](self, *given)
            _require_tree(made, f"what `{name}` makes")
            return made

        return look

    original: dict[str, Callable[..., Any]] = {
        name: getattr(kind, name) for name in ("init_server", "init_client")
    }
    first, second = original
    with patch.object(kind, first, looking(first)), patch.object(kind, second, looking(second)):
        yield


def _require_tree(value: Any, what: str, path: str = "") -> None:
    if isinstance(value, Tensor):
        return
    place = f" at {path}" if path else ""
    require(
        isinstance(value, dict | tuple),
        f"expected {what} to be tensors in dicts and (named) tuples, but it holds "
        f"{type(value).__name__} {value!r:.40}{place}; write torch.tensor(...), or a tuple for a "
        "list.",
    )
    if isinstance(value, dict):
        odd = [name for name in value if not isinstance(name, str)]
        require(not odd, f"expected {what} to have names as keys, but it has {odd[:3]}{place}.")
        parts = list(value.items())
    else:
        names = getattr(value, "_fields", range(len(value)))
        parts = list(zip(map(str, names), value, strict=True))
    for name, part in parts:
        _require_tree(part, what, f"{path}/{name}" if path else name)


CHECKS = (
    no_tensor_is_captured,
    a_round_runs_through_on_trees_of_tensors,
    trees_keep_their_structure,
    everybody_is_served,
)
WITH_BUFFERS = (trees_keep_their_structure, everybody_is_served)  # tried again in such worlds
