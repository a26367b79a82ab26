"""How the work is carried out changes no result."""

from __future__ import annotations

from torch import Tensor

from motet.data.federation import Examples, Federation
from motet.data.sources.arrays import from_arrays
from motet.federation import Run
from motet.method import AnyMethod
from motet.testing.comparing import require_close, require_same
from motet.testing.driving import predictions, states, trained
from motet.testing.worlds import World

ROUNDING = 1e-5  # two rounds on two backends
CHUNKING = 1e-6  # one round in chunks of another size


def serial_equals_vectorized(method: AnyMethod, world: World) -> None:
    """Stacked clients end where single ones do, be they ever so unequal."""
    oracle = trained(method, world, backend="serial")
    for mode in ("stack", "loop"):
        stacked = trained(method, world, backend="vectorized", mode=mode)
        _require_agreement(oracle, stacked, f"serial and vectorized (mode={mode})", ROUNDING)


def serial_equals_vectorized_for_clients_that_never_trained(
    method: AnyMethod, world: World
) -> None:
    """Clients that were not sampled are served alike by both backends."""
    oracle = trained(method, world, rounds=1, cohort=2, backend="serial")
    stacked = trained(method, world, rounds=1, cohort=2, backend="vectorized")
    _require_agreement(oracle, stacked, "serial and vectorized", ROUNDING)


def chunk_size_changes_nothing(method: AnyMethod, world: World) -> None:
    """Stacking one, two or all clients at a time is the same round."""
    whole = trained(method, world, rounds=1, backend="vectorized", chunk_size=64)
    for size in (1, 2):
        chunked = trained(method, world, rounds=1, backend="vectorized", chunk_size=size)
        _require_agreement(whole, chunked, f"chunks of 64 and of {size}", CHUNKING)


def workers_change_not_one_bit(method: AnyMethod, world: World) -> None:
    """Nothing but speed depends on the number of workers."""
    alone, many = (
        trained(method, world, backend="vectorized", chunk_size=2, workers=workers)
        for workers in (1, 3)
    )
    require_same(states(alone), states(many), "the states with 1 and with 3 workers")
    require_same(predictions(alone), predictions(many), "the predictions with 1 and 3 workers")


def listing_order_changes_nothing(method: AnyMethod, world: World) -> None:
    """Clients listed backwards are the same clients."""
    backwards = World(world.name, world.task, world.data.select(reversed(world.data.clients)))
    listed, reverse = (trained(method, w, cohort=0.5) for w in (world, backwards))
    require_same(states(listed), states(reverse), "the states under both listing orders")
    require_same(predictions(listed), predictions(reverse), "the predictions under both orders")


def poisoned_test_data_change_nothing(method: AnyMethod, world: World) -> None:
    """Test data are out of reach: poisoned ones change no trained state and no predictor."""
    poisoned = World(world.name, world.task, _poisoned(world.data))
    clean, dirty = (trained(method, w, cohort=0.5) for w in (world, poisoned))
    require_same(states(clean), states(dirty), "the states with clean and poisoned test data")
    for client in clean.clients:
        require_same(clean.personal(client), dirty.personal(client), f"the predictor of {client}")


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


CHECKS = (listing_order_changes_nothing, poisoned_test_data_change_nothing)
STACKED = (chunk_size_changes_nothing, workers_change_not_one_bit)  # if the method is vectorizable
STACKED_IN_EVERY_WORLD = (
    serial_equals_vectorized,
    serial_equals_vectorized_for_clients_that_never_trained,
)
