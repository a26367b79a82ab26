"""Accuracy of kNN-Per at every lambda and capacity of the datastore."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from motet._core.neighbours import Datastore, NearestVote, correct_by_lambda, distances_to
from motet._core.studies import FinishedRun, Study, evenly, lines
from motet._core.tree import State
from motet._training.batching import Plan
from motet.errors import CapabilityError
from motet.method import RoundInfo
from motet.methods._knn_per.datastore import Capacity, check_capacity, count_stored
from motet.task import Task

SHOWN_CAPACITIES = (0.0, 0.1, 0.25, 0.5, 1.0)
SHOWN_LAMBDAS = (0.0, 0.25, 0.5, 0.75, 1.0)
MOST_JUDGED = 10  # clients behind a curve


class Remembering(Protocol):
    """The part of kNN-Per that a table of capacities needs."""

    def look(self, model: State, x: Tensor, task: Task) -> tuple[Tensor, Tensor]:
        """Return representations of examples, and the model's side of the mix."""
        ...

    def voting(self) -> NearestVote:
        """Return how neighbours vote."""
        ...

    def broadcast(self, server: State, info: RoundInfo) -> Any:
        """Return what goes down."""
        ...

    def adapt_plans(self) -> dict[str, Plan]:
        """Name the phases of serving; "store" fills the datastore."""
        ...


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

    Example:
        >>> import numpy as np
        >>> accuracy = np.array([[[0.5], [0.75]], [[0.75], [0.25]]])
        >>> table = CapacityTable("val", ("a", "b"), (10, 30), (0.0, 1.0), (None,), accuracy)
        >>> table.mean.tolist(), table.weighted_mean.tolist()
        ([[0.625], [0.5]], [[0.6875], [0.375]])
        >>> {client: lams.tolist() for client, lams in table.best_lambdas().items()}
        {'a': [1.0], 'b': [0.0]}
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
        """Return each client's accuracy at its own lambdas.

        Args:
            lams: Lambdas of each client, one per capacity.
        """
        found = {}
        for client, table in zip(self.clients, self.accuracy, strict=True):
            if client in lams:
                rows = np.abs(np.asarray(self.lams)[:, None] - lams[client]).argmin(0)
                found[client] = table[rows, np.arange(len(self.capacities))]
        return found


def capacity_table(
    run: FinishedRun,
    method: Remembering,
    *,
    capacities: Sequence[Capacity],
    lams: Sequence[float],
    split: str,
    clients: Sequence[str],
) -> CapacityTable:
    """Score every lambda and capacity from one search per client.

    Distances are computed once: a smaller store is the first part of the same permutation, hence a
    part of the same matrix, and the prediction is linear in lambda.
    """
    federation = run.setting.federation
    for capacity in capacities:
        check_capacity(capacity)
    scored = [client for client in sorted(clients) if federation.size(client, split) > 0]
    tables = [_client_table(run, method, c, split, capacities, lams) for c in scored]
    return CapacityTable(
        split=split,
        clients=tuple(scored),
        examples=tuple(federation.size(c, split) for c in scored),
        lams=tuple(lams),
        capacities=tuple(capacities),
        accuracy=np.stack(tables),
    )


def validation_table(
    run: FinishedRun, method: Remembering, clients: Sequence[str], also: Sequence[float] = ()
) -> CapacityTable | None:
    """Score some clients on validation data, at the capacities that studies show."""
    federation = run.setting.federation
    judged = [client for client in clients if federation.size(client, "val") > 0]
    if not judged:
        return None
    return capacity_table(
        run,
        method,
        capacities=sorted({*SHOWN_CAPACITIES, *also}),
        lams=SHOWN_LAMBDAS,
        split="val",
        clients=evenly(judged, MOST_JUDGED),
    )


def capacity_study(table: CapacityTable) -> list[Study]:
    """Show what remembering more is worth, on validation data."""
    shown = [table.capacities.index(capacity) for capacity in SHOWN_CAPACITIES]
    curves = {
        f"lam {lam:g}": list(zip(SHOWN_CAPACITIES, row, strict=True))
        for lam, row in zip(table.lams, table.mean[:, shown].tolist(), strict=True)
    }
    note = (
        "Accuracy on validation data, mean over "
        f"{len(table.clients)} clients, if all weighed their neighbours by the same lam and "
        "remembered this share of their examples."
    )
    axes = {"x": "share of examples remembered", "y": "accuracy"}
    return [lines("What remembering more is worth", note, series=curves, **axes)]


def _client_table(
    run: FinishedRun,
    method: Remembering,
    client: str,
    split: str,
    capacities: Sequence[Capacity],
    lams: Sequence[float],
) -> np.ndarray:
    setting = run.setting
    x, y = setting.federation.examples(client, split)
    model, store = permuted_store(run, method, client)
    features, scores = method.look(model, x, setting.task)
    squared = distances_to(store, features)
    grid = torch.tensor(lams)

    def column(capacity: Capacity) -> Tensor:
        count = count_stored(len(store.labels), capacity)
        votes = method.voting().count(squared[:, :count], store.first(count), scores.shape[-1])
        return correct_by_lambda(scores, votes, y, grid).double().mean(-1)

    return torch.stack([column(c) for c in capacities], dim=1).numpy()


def permuted_store(run: FinishedRun, method: Remembering, client: str) -> tuple[Any, Datastore]:
    """Make a client's whole datastore, in the order in which a smaller one would be filled."""
    setting = run.setting
    info = setting.info(run.rounds_done, (client,))
    model = method.broadcast(run.server, info) | setting.client(client)
    order = setting.data(client, method.adapt_plans(), run.rounds_done)["store"]
    rows = order.rows.flatten()[order.weight.flatten() > 0]
    keys, _ = method.look(model, order.x[rows], setting.task)
    return model, Datastore(keys, order.y[rows], torch.ones(len(rows), dtype=torch.bool))
