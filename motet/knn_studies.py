"""Studies of kNN-Per on a finished run: any base, all lambdas and capacities, groups, streams."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from motet.errors import CapabilityError, RequestError
from motet.evaluate import Evaluation, with_examples
from motet.federation import Run
from motet.keys import Key
from motet.methods.knn_per import KNNPer
from motet.methods.knn_store import Capacity, check_capacity, count_stored
from motet.methods.knn_stream import Policy, StreamStore
from motet.methods.server_step import shared_part
from motet.neighbours import Datastore, correct_by_lambda, distances_to, mix
from motet.store import MemoryStore, Store
from motet.studies import FinishedRun, Study, evenly, lines

LAMBDAS = tuple(i / 10 for i in range(11))
SHOWN_CAPACITIES = (0.0, 0.1, 0.25, 0.5, 1.0)
SHOWN_LAMBDAS = (0.0, 0.25, 0.5, 0.75, 1.0)
MOST_JUDGED = 10  # clients behind a curve


def knn_per_from(run: Run, **hyperparameters: Any) -> Run:
    """Serve the global model of a finished run by kNN-Per, without training.

    Args:
        run: Of any method whose server holds a whole model: FedAvg, FedProx, FedAdam, ...
        **hyperparameters: Of `KNNPer`.
    """
    model = shared_part(run.server) if isinstance(run.server, dict) else {}
    if model.keys() != set(run.setting.task.names):
        raise CapabilityError(
            f"kNN-Per needs one whole model on the server, which {run.setting.method.name} has "
            "not; start from a run of FedAvg or of another method that averages whole models."
        )
    method = KNNPer(**hyperparameters)
    return _served_by(replace(run, server=model), method, MemoryStore())


def chosen_lambdas(run: Run) -> dict[str, float]:
    """Say how much each client of a kNN-Per run trusts its neighbours."""
    _knn_per(run)
    return {client: float(run.personal(client).lam) for client in sorted(run.clients)}


@dataclass(frozen=True)
class CapacityTable:
    """Accuracy for every client, lambda and capacity.

    Attributes:
        split: The data that were scored.
        clients: Those who have any, sorted.
        examples: How many each has.
        lams: The lambdas.
        capacities: The capacities: counts, fractions, or None for everything.
        accuracy: [clients, lambdas, capacities].
    """

    split: str
    clients: tuple[str, ...]
    examples: tuple[int, ...]
    lams: tuple[float, ...]
    capacities: tuple[Capacity, ...]
    accuracy: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        """Mean over clients, [lambdas, capacities]."""
        return np.asarray(self.accuracy.mean(0))

    @property
    def weighted_mean(self) -> np.ndarray:
        """Mean over clients weighted by their examples, [lambdas, capacities]."""
        return np.average(self.accuracy, axis=0, weights=self.examples)

    def best_lambdas(self) -> dict[str, np.ndarray]:
        """Choose each client's lambda at every capacity; ties go to the smallest."""
        if self.split == "test":
            raise CapabilityError(
                'test data never choose a lambda: make the table with split="val", and look its '
                "choice up in the test table with `at`."
            )
        best = np.asarray(self.lams)[self.accuracy.argmax(1)]  # [clients, capacities]
        return dict(zip(self.clients, best, strict=True))

    def at(self, lams: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Look up each client's accuracy at its own lambdas, one per capacity."""
        found = {}
        for client, table in zip(self.clients, self.accuracy, strict=True):
            if client in lams:
                rows = np.abs(np.asarray(self.lams)[:, None] - lams[client]).argmin(0)
                found[client] = table[rows, np.arange(len(self.capacities))]
        return found


def lambda_capacity_table(
    run: Run,
    *,
    capacities: Sequence[Capacity] = SHOWN_CAPACITIES,
    lams: Sequence[float] = LAMBDAS,
    split: str = "test",
    clients: Sequence[str] | None = None,
) -> CapacityTable:
    """Score every lambda and capacity of a kNN-Per run from one search per client.

    Distances are computed once: a smaller store is the first part of the same permutation, hence a
    part of the same matrix, and the prediction is linear in lambda.
    """
    method, federation = _knn_per(run), run.setting.federation
    _no_prototypes(method)
    for capacity in capacities:
        check_capacity(capacity)
    asked = federation.clients if clients is None else clients
    scored = with_examples(asked, lambda c: federation.size(c, split))
    tables = [_client_table(run, client, split, capacities, lams) for client in scored]
    return CapacityTable(
        split=split,
        clients=tuple(scored),
        examples=tuple(federation.size(c, split) for c in scored),
        lams=tuple(lams),
        capacities=tuple(capacities),
        accuracy=np.stack(tables),
    )


def capacity_study(run: FinishedRun, clients: Sequence[str]) -> list[Study]:
    """Show what remembering more is worth, on validation data; nothing where there are none."""
    federation, method = run.setting.federation, run.setting.method
    judged = with_examples(clients, lambda c: federation.size(c, "val"))
    if not judged or method.prototypes is not None:
        return []
    table = lambda_capacity_table(
        cast(Run, run),
        capacities=SHOWN_CAPACITIES,
        lams=SHOWN_LAMBDAS,
        split="val",
        clients=evenly(judged, MOST_JUDGED),
    )
    curves = {
        f"lam {lam:g}": list(zip(SHOWN_CAPACITIES, row, strict=True))
        for lam, row in zip(table.lams, table.mean.tolist(), strict=True)
    }
    note = (
        "Accuracy on validation data, mean over "
        f"{len(table.clients)} clients, if all weighed their neighbours by the same lam and "
        "remembered this share of their examples."
    )
    axes = {"x": "share of examples remembered", "y": "accuracy"}
    return [lines("What remembering more is worth", note, series=curves, **axes)]


def weak_and_strong(clients: Iterable[str], *, delta: float, seed: int = 0) -> dict[str, float]:
    """Spread memory unequally: room for 1/2 - delta of their examples to half of the clients.

    The other half gets room for 1/2 + delta, so that the total stays the same.

    >>> sorted(weak_and_strong("abcd", delta=0.25).values())
    [0.25, 0.25, 0.75, 0.75]
    """
    if not 0 <= delta <= 0.5:
        raise RequestError(f"delta= is between 0 and 1/2; got {delta}.")
    ordered = sorted(clients)
    shuffled = Key(seed).fold("weak and strong").numpy().permutation(len(ordered))
    weak = {ordered[i] for i in shuffled[: len(ordered) // 2]}
    return {client: 0.5 - delta if client in weak else 0.5 + delta for client in ordered}


def evaluate_with_capacities(
    run: Run, capacities: Mapping[str, Capacity], split: str = "test"
) -> Evaluation:
    """Score a kNN-Per run whose clients have a capacity each."""
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
    """Yield the accuracy on each batch of a stream, which then enters the client's datastore.

    The client starts with the datastore and lambda it has in the run, and keeps its lambda. The
    global model is never trained again.

    Args:
        run: A kNN-Per run.
        client: Whose stream it is.
        stream: Batches (x, y), oldest first.
        policy: What the datastore does when it is full, see `StreamStore`.
        capacity: Keys that fit; as many as the client has now if None.
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


def _client_table(
    run: Run, client: str, split: str, capacities: Sequence[Capacity], lams: Sequence[float]
) -> np.ndarray:
    method, setting = _knn_per(run), run.setting
    x, y = setting.federation.examples(client, split)
    model, store = _permuted_store(run, client)
    features, scores = method.look(model, x, setting.task)
    squared = distances_to(store, features)
    grid = torch.tensor(lams)

    def column(capacity: Capacity) -> Tensor:
        count = count_stored(len(store.labels), capacity)
        votes = method.voting().count(squared[:, :count], store.first(count), scores.shape[-1])
        return correct_by_lambda(scores, votes, y, grid).double().mean(-1)

    return torch.stack([column(c) for c in capacities], dim=1).numpy()


def _permuted_store(run: Run, client: str) -> tuple[Any, Datastore]:
    """Make a client's whole datastore, in the order in which a smaller one would be filled."""
    method, setting = _knn_per(run), run.setting
    info = setting.info(run.finished, (client,))
    model = method.broadcast(run.server, info) | setting.client(client)
    order = setting.data(client, method.adapt_plans(), run.finished)["store"]
    rows = order.rows.flatten()[order.weight.flatten() > 0]
    keys, _ = method.look(model, order.x[rows], setting.task)
    return model, Datastore(keys, order.y[rows], torch.ones(len(rows), dtype=torch.bool))


def _served_by(run: Run, method: KNNPer, store: Store) -> Run:
    """Hand a run's server to another method, with what its clients keep."""
    warnings = tuple(method.check(run.setting.task, run.setting.federation.clients))
    return replace(run.serving(method=method, store=store, init={}), warnings=warnings)


def _knn_per(run: Run) -> KNNPer:
    method = run.setting.method
    if not isinstance(method, KNNPer):
        raise RequestError(
            f"this is about runs of knn-per, and this one is of {method.name}; "
            "make one with `knn_per_from(run)`."
        )
    return method


def _no_prototypes(method: KNNPer) -> None:
    if method.prototypes is not None:
        raise CapabilityError(
            "prototypes are learned from a whole datastore and do not shrink or grow; use "
            "prototypes=None here."
        )
