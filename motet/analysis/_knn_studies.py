"""Studies of kNN-Per on a finished run: other base models, lambdas, capacities and streams."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from motet._core.neighbours import mix
from motet._engine.evaluation import Evaluation
from motet._engine.federation import Run
from motet._engine.stores.memory import MemoryStore, Store
from motet.errors import CapabilityError, RequestError
from motet.methods._bases.server_step import shared_part
from motet.methods._knn_per.capacity import SHOWN_CAPACITIES, CapacityTable, capacity_table
from motet.methods._knn_per.datastore import Capacity
from motet.methods._knn_per.method import KNNPer
from motet.methods._knn_per.stream import Policy, StreamStore
from motet.methods._knn_per.unequal import weak_clients

LAMBDAS = tuple(i / 10 for i in range(11))


def knn_per_from(run: Run, **hyperparameters: Any) -> Run:
    """Serve the global model of a finished run with kNN-Per, without training.

    Args:
        run: A run of any method whose server holds a whole model: FedAvg, FedProx, FedAdam, ...
        **hyperparameters: Arguments of `KNNPer`.

    Returns:
        A run of kNN-Per at the same round, whose clients have not chosen their lambda yet.

    Raises:
        CapabilityError: The server of the run does not hold a whole model.

    Example:
        >>> import motet
        >>> world = motet.testing.ragged()
        >>> run = motet.run(motet.FedAvg(), world.task, world.data, rounds=1)
        >>> motet.analysis.knn_per_from(run).setting.method.name
        'knn-per'
    """
    model = shared_part(run.server) if isinstance(run.server, dict) else {}
    if model.keys() != set(run.setting.task.names):
        raise CapabilityError(
            f"kNN-Per needs one whole model on the server, which {run.setting.method.name} does "
            "not have; start from a run of FedAvg or another method that averages whole models."
        )
    method = KNNPer(**hyperparameters)
    return _served_by(replace(run, server=model), method, MemoryStore())


def chosen_lambdas(run: Run) -> dict[str, float]:
    """Return each client's lambda: the weight of its neighbours' votes in a kNN-Per run.

    Args:
        run: A kNN-Per run.

    Returns:
        The lambda of each client.

    Raises:
        RequestError: It is a run of another method.

    Example:
        >>> import motet
        >>> world = motet.testing.ragged()
        >>> run = motet.run(motet.KNNPer(lam=0.5), world.task, world.data, rounds=0)
        >>> chosen_lambdas(run)["few"]
        0.5
    """
    _knn_per(run)
    return {client: float(run.personal(client).lam) for client in sorted(run.clients)}


def lambda_capacity_table(
    run: Run,
    *,
    capacities: Sequence[Capacity] = SHOWN_CAPACITIES,
    lams: Sequence[float] = LAMBDAS,
    split: str = "test",
    clients: Sequence[str] | None = None,
) -> CapacityTable:
    """Score every lambda and capacity of a kNN-Per run with one neighbour search per client.

    Args:
        run: A kNN-Per run.
        capacities: Sizes of the datastore: counts, or shares of a client's examples.
        lams: Weights of the neighbours' votes.
        split: "train", "val" or "test".
        clients: Clients to include; None means all.

    Returns:
        The mean score for each capacity and lambda.

    Raises:
        RequestError: It is a run of another method.
        CapabilityError: The run keeps prototypes instead of examples.

    Example:
        >>> import motet
        >>> world = motet.testing.ragged()
        >>> run = motet.run(motet.KNNPer(), world.task, world.data, rounds=0, backend="serial")
        >>> lambda_capacity_table(run, capacities=(2, None), lams=(0.0, 1.0)).mean.shape
        (2, 2)
    """
    method = _knn_per(run)
    _no_prototypes(method)
    asked = run.setting.federation.clients if clients is None else clients
    return capacity_table(run, method, capacities=capacities, lams=lams, split=split, clients=asked)


def weak_and_strong(clients: Iterable[str], *, delta: float, seed: int = 0) -> dict[str, float]:
    """Distribute capacity unequally: half of the clients keep 1/2 - delta of their examples.

    The other half keep 1/2 + delta, so that the total stays the same.

    Args:
        clients: Client ids.
        delta: Distance from one half, from 0 to 1/2.
        seed: Decides which clients are weak.

    Returns:
        The share of its examples that each client keeps.

    Raises:
        RequestError: `delta` is not between 0 and 1/2.

    Example:
        >>> sorted(weak_and_strong("abcd", delta=0.25).values())
        [0.25, 0.25, 0.75, 0.75]
    """
    if not 0 <= delta <= 0.5:
        raise RequestError(f"delta= must be between 0 and 1/2; got {delta}.")
    ordered = sorted(clients)
    weak = weak_clients(ordered, seed)
    return {client: 0.5 - delta if client in weak else 0.5 + delta for client in ordered}


def evaluate_with_capacities(
    run: Run, capacities: Mapping[str, Capacity], split: str = "test"
) -> Evaluation:
    """Score a kNN-Per run with a separate capacity for each client.

    Args:
        run: A kNN-Per run.
        capacities: The size of each client's datastore.
        split: "train", "val" or "test".

    Returns:
        The scores.

    Raises:
        RequestError: It is a run of another method.

    Example:
        >>> import motet
        >>> world = motet.testing.ragged()
        >>> run = motet.run(motet.KNNPer(lam=0.5), world.task, world.data, rounds=0)
        >>> len(evaluate_with_capacities(run, {"few": 2, "many": None}).rows)
        2
    """
    method = _knn_per(run)
    groups: dict[Capacity, list[str]] = {}
    for client, capacity in capacities.items():
        groups.setdefault(capacity, []).append(client)
    parts = [
        _served_by(run, replace(method, capacity=capacity), run.setting.store).evaluate(
            split, clients=members
        )
        for capacity, members in groups.items()
    ]
    return replace(parts[0], rows=tuple(sorted(row for part in parts for row in part.rows)))


def follow_stream(
    run: Run,
    client: str,
    stream: Iterable[tuple[Tensor, Tensor]],
    *,
    policy: Policy,
    capacity: int | None = None,
) -> Iterator[float]:
    """Yield the accuracy on each batch of a stream, then add the batch to the client's datastore.

    The client starts with its datastore and lambda of the run. Its lambda stays fixed, and the
    global model is not trained further.

    Args:
        run: A kNN-Per run.
        client: The client that receives the stream.
        stream: Batches (x, y), oldest first.
        policy: What a full datastore does, see `StreamStore`.
        capacity: Size of the datastore; None means its current size.

    Yields:
        The accuracy on each batch, before the batch is added.

    Raises:
        RequestError: It is a run of another method.

    Example:
        >>> import motet
        >>> world = motet.testing.ragged()
        >>> run = motet.run(motet.KNNPer(lam=0.5), world.task, world.data, rounds=0)
        >>> stream = [world.data.examples("many", split) for split in ("val", "test")]
        >>> len(list(follow_stream(run, "many", stream, policy="first-in-first-out")))
        2
    """
    method, task = _knn_per(run), run.setting.task
    _no_prototypes(method)
    model, memory, lam = run.personal(client)
    size = len(memory.labels) if capacity is None else capacity
    store = StreamStore(store=memory, policy=policy, capacity=size)
    for x, y in stream:
        features, scores = method.look(model, x, task)
        votes = method.ask(store.store, features, scores.shape[-1])
        yield float((mix(scores, votes, lam).argmax(-1) == y).double().mean())
        store = store.add(features, y)


def _served_by(run: Run, method: KNNPer, store: Store) -> Run:
    """Serve a run's global model with another method and client store."""
    warnings = tuple(method.check(run.setting.task, run.setting.federation.clients))
    return replace(run.serving(method=method, store=store, init={}), warnings=warnings)


def _knn_per(run: Run) -> KNNPer:
    method = run.setting.method
    if not isinstance(method, KNNPer):
        raise RequestError(
            f"expected a run of knn-per; got a run of {method.name}. Create one with "
            "`knn_per_from(run)`."
        )
    return method


def _no_prototypes(method: KNNPer) -> None:
    if method.prototypes is not None:
        raise CapabilityError(
            "prototypes are learned from a whole datastore and have a fixed size; use "
            "prototypes=None here."
        )
