"""Checks that a method and its run survive saving and loading."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NoReturn
from unittest.mock import patch

import torch

from motet._core import wire
from motet._engine.federation import Run
from motet.method import AnyMethod
from motet.testing._comparing import ConformanceError, require, require_same
from motet.testing._declaration import is_a_frozen_dataclass, no_field_holds_a_tensor
from motet.testing._driving import predictions, started, states, trained
from motet.testing._promises import presupposes
from motet.testing._purity import a_stack_of_clients_runs_through, runs_are_repeatable
from motet.testing._worlds import World


@presupposes(runs_are_repeatable)
def resuming_equals_running_through(method: AnyMethod, world: World) -> None:
    """Half a run, saved and finished elsewhere, ends as the whole run does."""
    whole = trained(method, world, cohort=0.5)
    first = started(method, world, cohort=0.5)
    first.advance()
    second = started(method, world, cohort=0.5)
    _restore(second, _save(first))
    second.advance()
    require_same(states(whole), states(second), "the states run through and resumed")
    require_same(predictions(whole), predictions(second), "the predictions run through and resumed")


@presupposes(is_a_frozen_dataclass, no_field_holds_a_tensor)
def config_round_trip(method: AnyMethod, _: World) -> None:
    """Written as a config and read back, the method is the same."""
    # Only here: a method can be checked without the command line's half of the library.
    from motet.config import method_from_dict, method_to_dict

    written = method_to_dict(method)
    again = method_from_dict(json.loads(json.dumps(written)))
    require(again == method, f"expected {method} from its config {written}; got {again}.")


@presupposes(a_stack_of_clients_runs_through)
def nothing_is_pickled(method: AnyMethod, world: World) -> None:
    """Neither a run nor what it saves needs pickle, which would run code."""
    with _without_pickle():
        federated = trained(method, world, rounds=1)
        predictions(federated)
        _save(federated)


def _save(federated: Run) -> dict[str, bytes]:
    """Write down the server's state under "", and what each client keeps under its name."""
    store = federated.setting.store
    kept = {client: wire.to_bytes(store.get(client)) for client in store}
    return {"": wire.to_bytes(federated.server)} | kept


def _restore(fresh: Run, saved: dict[str, bytes]) -> None:
    setting = fresh.setting
    fresh.server = wire.from_bytes(fresh.server, saved[""])
    for client in saved.keys() - {""}:
        template = setting.fresh_client(client)
        setting.store.put(client, wire.from_bytes(template, saved[client]))
    fresh.rounds_done = 1


@contextmanager
def _without_pickle() -> Iterator[None]:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise ConformanceError("expected no pickle, but it was called; use `motet._core.wire`.")

    with ExitStack() as stack:
        for module, names in (
            (pickle, ("dump", "dumps", "load", "loads")),
            (torch, ("save", "load")),
        ):
            for name in names:
                stack.enter_context(patch.object(module, name, refuse))
        yield


CHECKS = (resuming_equals_running_through, config_round_trip, nothing_is_pickled)
