"""Checks that the backend and the order of the work change no result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from torch import Tensor

from motet._engine.federation import Run
from motet._engine.run_spec import down_for
from motet._tracing.programs import Programs
from motet.data._federation import Examples, Federation
from motet.data._sources.arrays import from_arrays
from motet.method import AnyMethod
from motet.privacy._uploads import finish_reduction
from motet.testing._comparing import require, require_close, require_same
from motet.testing._driving import next_info, predictions, started, states, trained
from motet.testing._persistence import resuming_equals_running_through
from motet.testing._promises import presupposes
from motet.testing._purity import runs_are_repeatable
from motet.testing._serving import predictions_are_probabilities
from motet.testing._worlds import World

ROUNDING = 1e-5  # two rounds on two backends
CHUNKING = 1e-6  # one round in chunks of another size


@presupposes(runs_are_repeatable, predictions_are_probabilities)
def serial_equals_vectorized(method: AnyMethod, world: World) -> None:
    """Stacked clients end where single ones do, be they ever so unequal."""
    oracle = trained(method, world, backend="serial")
    for mode in ("stack", "loop"):
        stacked = trained(method, world, backend="vectorized", mode=mode)
        _require_agreement(oracle, stacked, f"serial and vectorized (mode={mode})", ROUNDING)


@presupposes(serial_equals_vectorized)
def serial_equals_vectorized_for_clients_that_never_trained(
    method: AnyMethod, world: World
) -> None:
    """Clients that were not sampled are served alike by both backends."""
    oracle = trained(method, world, rounds=1, cohort=2, backend="serial")
    stacked = trained(method, world, rounds=1, cohort=2, backend="vectorized")
    _require_agreement(oracle, stacked, "serial and vectorized", ROUNDING)


@presupposes(serial_equals_vectorized)
def chunk_size_changes_nothing(method: AnyMethod, world: World) -> None:
    """Stacking one, two or all clients at a time is the same round."""
    stacking: dict[str, Any] = {"rounds": 1, "backend": "vectorized", "mode": "stack"}
    whole = trained(method, world, chunk_size=64, **stacking)
    for size in (1, 2):
        chunked = trained(method, world, chunk_size=size, **stacking)
        _require_agreement(whole, chunked, f"chunks of 64 and of {size}", CHUNKING)


@presupposes(serial_equals_vectorized)
def workers_change_not_one_bit(method: AnyMethod, world: World) -> None:
    """Nothing but speed depends on the number of workers."""
    alone, many = (
        trained(method, world, backend="vectorized", chunk_size=2, workers=workers)
        for workers in (1, 3)
    )
    require_same(states(alone), states(many), "the states with 1 and with 3 workers")
    require_same(predictions(alone), predictions(many), "the predictions with 1 and 3 workers")


@presupposes(runs_are_repeatable)
def listing_order_changes_nothing(method: AnyMethod, world: World) -> None:
    """Clients listed backwards are the same clients."""
    backwards = World(world.name, world.task, world.data.select(reversed(world.data.clients)))
    listed, reverse = (trained(method, w, cohort=0.5) for w in (world, backwards))
    require_same(states(listed), states(reverse), "the states under both listing orders")
    require_same(predictions(listed), predictions(reverse), "the predictions under both orders")


@presupposes(resuming_equals_running_through)
def cohort_order_changes_nothing(method: AnyMethod, world: World) -> None:
    """Clients count by their names, not by their place in the cohort."""
    federated = trained(method, world, rounds=1, backend="serial")
    setting, info = federated.setting, next_info(federated)
    down = method.broadcast(federated.server, info)
    outcome = federated.backend.train(down, info)
    combined = finish_reduction(method.reduce, outcome.partial, down, info)
    turned = info._replace(cohort=info.cohort[::-1])
    downs = method.broadcast(federated.server, turned)
    for client in info.cohort:
        whose = f"what goes down to {client} under both orders"
        require_close(down_for(down, client), down_for(downs, client), whose, ROUNDING)
    one, other = (
        method.server_update(federated.server, combined, about, setting.task)
        for about in (info, turned)
    )
    require_close(one, other, "the server's state under both orders of the cohort", ROUNDING)


@presupposes(runs_are_repeatable)
def poisoned_test_data_change_nothing(method: AnyMethod, world: World) -> None:
    """Test data are out of reach: poisoned ones change no trained state and no predictor."""
    poisoned = World(world.name, world.task, _poisoned(world.data))
    clean, dirty = (trained(method, w, cohort=0.5) for w in (world, poisoned))
    require_same(states(clean), states(dirty), "the states with clean and poisoned test data")
    for client in clean.clients:
        require_same(clean.personal(client), dirty.personal(client), f"the predictor of {client}")


@presupposes(serial_equals_vectorized)
def a_third_round_makes_no_new_program(method: AnyMethod, world: World) -> None:
    """Every step is traced once, and used again in later rounds."""
    federated = started(method, world, rounds=3, backend="vectorized", traced=True)
    counts: list[int] = []
    with programs_made() as made:
        for _ in range(3):
            federated.advance()
            predictions(federated)
            counts.append(len(made))
    require(
        counts[2] == counts[1],
        f"expected no new traced step in the third round, but {counts[2] - counts[1]} were made; "
        "make equal losses and optimizers of equal values in every round, and hand what changes "
        "over as a tensor: fit(..., given=(...)).",
    )


@contextmanager
def programs_made() -> Iterator[list[Any]]:
    """List the programs that are made, by all tasks."""
    made: list[Any] = []
    keep = Programs._keep

    def noting(self: Programs, key: Any, program: Any) -> None:
        made.append(key)
        keep(self, key, program)

    with patch.object(Programs, "_keep", noting):
        yield made


def _require_agreement(a: Run, b: Run, whose: str, tolerance: float) -> None:
    require_close(states(a), states(b), f"the states of {whose}", tolerance)
    require_close(predictions(a), predictions(b), f"the predictions of {whose}", tolerance)


def _poisoned(data: Federation) -> Federation:
    """Turn the test inputs around, and give every test example another label."""

    def examples(split: str) -> dict[str, Examples]:
        return {c: data.examples(c, split) for c in data.clients if data.size(c, split)}

    def other(y: Tensor) -> Tensor:
        return y + 1 if data.classes is None else (y + 1) % data.classes

    test = {c: Examples(x.flip(0), other(y)) for c, (x, y) in examples("test").items()}
    return from_arrays(
        examples("train"), examples("val"), test, classes=data.classes, name=data.name
    )


CHECKS = (
    listing_order_changes_nothing,
    cohort_order_changes_nothing,
    poisoned_test_data_change_nothing,
)
# If the method is vectorizable:
STACKED_IN_EVERY_WORLD = (
    serial_equals_vectorized,
    serial_equals_vectorized_for_clients_that_never_trained,
)
STACKED = (
    *STACKED_IN_EVERY_WORLD,
    chunk_size_changes_nothing,
    workers_change_not_one_bit,
    a_third_round_makes_no_new_program,
)
