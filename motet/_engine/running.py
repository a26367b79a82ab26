"""`motet.run` and `motet.rounds`: a federation from its first round to its last."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

from motet._engine.federation import Run, start
from motet._engine.round_loop import CommitStates, play_rounds
from motet._engine.round_result import Round
from motet._engine.stores.memory import with_empty_store
from motet.data._federation import Federation
from motet.errors import DivergenceWarning
from motet.method import AnyMethod
from motet.task import Task


def rounds(
    method: AnyMethod, task: Task, data: Federation, *, rounds: int, **settings: Any
) -> Iterator[Round]:
    """Yield after every round. Evaluation, checkpoints and early stopping belong to the caller.

    Args:
        method: The method.
        task: The network and its loss.
        data: The federation.
        rounds: Number of rounds.
        **settings: As for `motet.run`.

    Yields:
        A `Round`: its number, cohort, losses and faults, and the run itself.

    Example:
        >>> import motet
        >>> world = motet.testing.ragged()
        >>> for done in motet.rounds(motet.FedAvg(), world.task, world.data, rounds=2):
        ...     print(done.number, len(done.cohort))
        1 6
        2 6
    """
    run = start(method, task, data, rounds=rounds, **with_empty_store(settings))
    yield from play_rounds(run, [CommitStates(run)])


def run(method: AnyMethod, task: Task, data: Federation, *, rounds: int, **settings: Any) -> Run:
    """Run a federation to its end.

    Args:
        method: The method.
        task: The network and its loss.
        data: The federation.
        rounds: Number of rounds; 0 returns the initial state.
        **settings: `cohort` (fraction or count, default all), `seed`, `backend` ("auto", "serial",
            "vectorized", "ray"), `init` (initial values by name, the path of a run directory, a
            checkpoint or a .safetensors file, or a `motet.Weights`, which maps names),
            `init_clients` (private values by client), `store` (where private states live, default
            memory; a `motet.DiskStore` for more than memory holds), `faults` (what goes wrong on
            the way), `trial` (whether work is tried out on a few examples before round 1; default
            True), `metrics` (names, "module:function" or objects, the deciding one first; default:
            that of the kind of task), `weigh` (what counts equally in means: "clients" or
            "examples"), `serving_steps` (gradient steps of every method that adapts when it serves
            a client; default: its own), `uploads` ("float32", "float16" or "bfloat16"), and the
            backend's own options (`chunk_size`, ...; for Ray `address`, `actors`, `state_dir`).

    Returns:
        The finished run: `evaluate`, `predict`, `adapt`, and everything that the clients keep.

    Raises:
        RequestError: A setting is wrong.
        DataError: The data do not fit the loss, or StructureError: the network.
        CapabilityError: The method, the network or the backend cannot do what was asked.

    Example:
        >>> import motet
        >>> world = motet.testing.ragged()
        >>> run = motet.run(motet.FedAvg(), world.task, world.data, rounds=1)
        >>> run.rounds_done
        1
    """
    federated = start(method, task, data, rounds=rounds, **with_empty_store(settings))
    for _ in play_rounds(federated, [CommitStates(federated)]):
        pass
    told = federated.divergence.sentences(len(data.clients))
    if told:
        warnings.warn(" ".join(told), DivergenceWarning, stacklevel=2)
    return federated
