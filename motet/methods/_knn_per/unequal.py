"""Unequal memories and moving data: what kNN-Per's clients lose and regain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from motet._core.keys import Key
from motet._core.neighbours import correct_by_lambda, distances_to
from motet._core.studies import FinishedRun, Study, lines
from motet.methods._knn_per.capacity import CapacityTable, Remembering, permuted_store
from motet.methods._knn_per.stream import POLICIES, Policy, StreamStore

DELTAS = (0.0, 0.125, 0.25, 0.375, 0.5)
CAPACITIES = tuple(sorted({0.5 + sign * delta for delta in DELTAS for sign in (-1, 1)}))
BATCH, BATCHES = 20, 8  # examples of a stream that are scored together, and how often
MOST_PAIRS = 6


def weak_clients(clients: Sequence[str], seed: int = 0) -> frozenset[str]:
    """Draw the half of the clients that is weak."""
    ordered = sorted(clients)
    shuffled = Key(seed).fold("weak and strong").numpy().permutation(len(ordered))
    return frozenset(ordered[i] for i in shuffled[: len(ordered) // 2])


def unequal_study(table: CapacityTable) -> list[Study]:
    """Show what unequal memories cost, from a table on validation data with `CAPACITIES`."""
    weak = weak_clients(table.clients)
    if not weak:
        return []
    scores = table.at(table.best_lambdas())
    place = {capacity: number for number, capacity in enumerate(table.capacities)}

    def mean(clients: Sequence[str], delta: float) -> float:
        shares = {c: 0.5 - delta if c in weak else 0.5 + delta for c in clients}
        return float(np.mean([scores[c][place[share]] for c, share in shares.items()]))

    groups = {
        "weak clients": sorted(weak),
        "strong clients": sorted(set(table.clients) - weak),
        "all clients": list(table.clients),
    }
    series = {name: [(d, mean(who, d)) for d in DELTAS] for name, who in groups.items()}
    note = (
        f"Accuracy on validation data. Half of {len(table.clients)} clients remember 1/2 - delta "
        "of their examples, the others 1/2 + delta: the same in total. Each client has the lam "
        "that is best for it."
    )
    axes = {"x": "delta", "y": "accuracy"}
    return [lines("Weak and strong clients", note, series=series, **axes)]


def shift_study(
    run: FinishedRun, method: Remembering, clients: Sequence[str], lams: Mapping[str, float]
) -> list[Study]:
    """Show how clients recover when their data become another client's."""
    federation = run.setting.federation
    usable = [c for c in clients if c in lams and federation.size(c, "train") >= 2 * BATCH]
    pairs = list(zip(usable, [*usable[1:], *usable[:1]], strict=True))[:MOST_PAIRS]
    if len(usable) < 2:
        return []
    batches = min(min(federation.size(b, "train") for _, b in pairs) // BATCH, BATCHES)
    curves = {
        policy: np.mean(
            [_followed(run, method, *pair, lams[pair[0]], policy, batches) for pair in pairs], 0
        )
        for policy in POLICIES
    }
    series: dict[str, list[tuple[float, float]]] = {
        name: [(BATCH * n, float(value)) for n, value in enumerate(curve)]
        for name, curve in curves.items()
    }
    note = (
        f"{len(pairs)} clients receive the training examples of another client, {BATCH} at a "
        "time: each batch is scored, then stored, by one of three policies. lam and the global "
        "model stay."
    )
    axes = {"x": "examples stored since the shift", "y": "accuracy on the next examples"}
    return [lines("When a client's data change", note, series=series, **axes)]


def _followed(
    run: FinishedRun,
    method: Remembering,
    client: str,
    source: str,
    lam: float,
    policy: Policy,
    batches: int,
) -> list[float]:
    """Score and store another client's training examples, batch by batch."""
    setting = run.setting
    model, memory = permuted_store(run, method, client)
    x, y = setting.federation.examples(source, "train")
    order = Key(0).fold("shift", source).numpy().permutation(len(y))[: batches * BATCH]
    x, y = x[order], y[order]
    features, scores = method.look(model, x, setting.task)
    store = StreamStore(store=memory, policy=policy, capacity=len(memory.labels))
    found = []
    for start in range(0, batches * BATCH, BATCH):
        rows = slice(start, start + BATCH)
        squared = distances_to(store.store, features[rows])
        votes = method.voting().count(squared, store.store, scores.shape[-1])
        correct = correct_by_lambda(scores[rows], votes, y[rows], torch.tensor([lam]))
        found.append(float(correct.double().mean()))
        store = store.add(features[rows], y[rows])
    return found
