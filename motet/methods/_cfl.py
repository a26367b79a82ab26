"""CFL: run FedAvg until it settles, then split the clients whose updates disagree; and again.

Sattler et al., "Clustered Federated Learning: Model-Agnostic Distributed Multitask Optimization
Under Privacy Constraints", IEEE TNNLS 2020. https://arxiv.org/abs/1910.01991
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from motet._core.aggregation.mean import Gather, Reduce
from motet._core.keys import Key
from motet._core.studies import FinishedRun, Study
from motet._core.tree import State, subtract
from motet._training.fitting import fit
from motet.errors import RequestError
from motet.method import Card, ClientData, Method, PerClient, RoundInfo
from motet.methods._bases.cluster_tree import (
    ClusterTree,
    bipartition,
    cosines,
    flat_updates,
    plant,
    split,
    tree_study,
)
from motet.task import Task


class Sent(NamedTuple):
    """A client's cluster model; also the whole tree, for a client without a cluster."""

    model: State
    tree: ClusterTree | tuple[()]


@dataclass(frozen=True, kw_only=True)
class CFL(Method[ClusterTree, State, Sent, State]):
    """A tree of clusters, each with a model of its own.

    Attributes:
        settled: A cluster may split when ||mean update|| < settled * (largest ||update||): together
            they have settled, each by itself has not. 0 never splits, which is FedAvg.
        settled_below: The paper's eps_1: if given, an absolute bound on ||mean update|| instead.
        restless_above: The paper's eps_2: if given, the largest ||update|| must exceed it.
        alike: No pair across the cut may be more similar than this cosine.
        warmup: Rounds before the first split.
        clusters: The most clusters there can be.

    Example:
        >>> import motet
        >>> motet.CFL(settled=0.2).name
        'cfl'
    """

    settled: float = 0.2
    settled_below: float | None = None
    restless_above: float | None = None
    alike: float = 0.7071
    warmup: int = 10
    clusters: int = 8
    reduce: Reduce = Gather()

    name: ClassVar[str] = "cfl"
    stateful: ClassVar[bool] = False
    card: ClassVar[Card] = Card(
        title="CFL",
        paper="Sattler et al., TNNLS",
        year=2020,
        link="https://arxiv.org/abs/1910.01991",
        idea="FedAvg until it settles, then split the clients whose updates disagree.",
        shared="one model per cluster",
        private="nothing",
        down="1",
        up="1",
        new_client="walks down the tree of clusters by the direction of its own update",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clusters < 1:
            raise RequestError(f"CFL(clusters=) counts clusters: 1 or more; got {self.clusters}.")
        if not self.settled >= 0:
            raise RequestError(f"CFL(settled=) is a ratio: 0 or more; got {self.settled}.")

    def check(self, task: Task, clients: Sequence[str]) -> list[str]:
        never = self.clusters == 1 or (self.settled == 0 and self.settled_below is None)
        return ["cfl: these thresholds never split: FedAvg with equal weights."] if never else []

    def init_server(
        self, task: Task, initial: State, clients: Sequence[str], key: Key
    ) -> ClusterTree:
        return plant(initial, task.trainable(initial), len(clients), self.clusters)

    def init_client(self, task: Task, initial: State, key: Key) -> State:
        return {}

    def broadcast(self, server: ClusterTree, info: RoundInfo) -> PerClient:
        place = {client: i for i, client in enumerate(info.clients)}

        def sent(client: str) -> Sent:
            known = client in place and bool(server.reported[place[client]])
            node = int(server.leaf[place[client]]) if client in place else 0
            model = {k: v[node] for k, v in server.models.items()}
            return Sent(model, () if known or not info.serving else server)

        return PerClient({client: sent(client) for client in info.cohort})

    def client_update(
        self, down: Sent, client: State, data: ClientData, task: Task
    ) -> tuple[State, State]:
        return fit(task, down.model, data["train"], self.optimizer), client

    def server_update(
        self, server: ClusterTree, combined: dict[str, State], info: RoundInfo, task: Task
    ) -> ClusterTree:
        place = {client: i for i, client in enumerate(info.clients)}
        uploads = {place[client]: upload for client, upload in combined.items()}
        grown = remember(server, uploads, task)
        if info.number >= self.warmup:
            for node in server.leaves():
                grown = self._maybe_split(grown, node)
        return average(grown, uploads)

    def notes(self, server: ClusterTree, combined: Any, info: RoundInfo) -> dict[str, Any]:
        clusters = {
            str(node): [info.clients[i] for i in server.members(node)] for node in server.leaves()
        }
        return {"clusters": clusters, "parents": server.parent[: int(server.used)].tolist()}

    def studies(self, run: FinishedRun) -> list[Study]:
        return [tree_study(run)]

    def adapt(self, down: Sent, client: State, data: ClientData, task: Task) -> State:
        if not isinstance(down.tree, ClusterTree):
            return client
        return find_place(self, down.tree, data, task)

    def personalize(self, down: Sent, client: State, data: ClientData, task: Task) -> State:
        return client or down.model

    def after_broadcast(self, down: Sent, client: State, task: Task) -> State:
        return down.model

    def after_local(self, down: Sent, up: State, client: State, task: Task) -> State:
        return up

    def _maybe_split(self, grown: ClusterTree, node: int) -> ClusterTree:
        known = [i for i in grown.members(node) if grown.reported[i]]
        if len(known) <= 2 or not grown.has_room():
            return grown
        updates = flat_updates(grown, known)
        if not self._wants_to_split(updates):
            return grown
        similarity = cosines(updates)
        second = bipartition(similarity)
        # Positions in the federation, not in the cluster: mixing them up loses clients after the
        # second split.
        halves = [[i for i, s in zip(known, second, strict=True) if s == side] for side in (0, 1)]
        if similarity[~second][:, second].max() > self.alike:
            return grown
        absent = [i for i in grown.members(node) if i not in known]
        # Deviates: Clients that have not reported go with the larger half.
        max(halves, key=len).extend(absent)
        return split(grown, node, *halves)

    def _wants_to_split(self, updates: Tensor) -> bool:
        together, largest = updates.mean(0).norm(), updates.norm(dim=1).max()
        bound = self.settled * largest if self.settled_below is None else self.settled_below
        restless = self.restless_above is None or largest > self.restless_above
        return bool(together < bound) and bool(restless)


def remember(server: ClusterTree, uploads: dict[int, State], task: Task) -> ClusterTree:
    """Keep each client's change of the parameters."""
    # Deviates: Splits use the last update of every client.
    updates = {k: v.clone() for k, v in server.updates.items()}
    reported = server.reported.clone()
    for client, upload in uploads.items():
        before = {k: v[server.leaf[client]] for k, v in server.models.items()}
        change = subtract(task.trainable(upload), task.trainable(before))
        for name, value in change.items():
            updates[name][client] = value
        reported[client] = 1
    return server._replace(updates=updates, reported=reported)


def average(grown: ClusterTree, uploads: dict[int, State]) -> ClusterTree:
    """Average within every leaf; a leaf without reports stays as it is."""
    models = {k: v.clone() for k, v in grown.models.items()}
    for node in grown.leaves():
        reports = [uploads[i] for i in grown.members(node) if i in uploads]
        for name in models if reports else ():
            stacked = torch.stack([report[name] for report in reports])
            exact = stacked.is_floating_point()
            mean = stacked.double().mean(0).to(stacked.dtype) if exact else stacked.amax(0)
            models[name][node] = mean
    return grown._replace(models=models)


def find_place(method: CFL, grown: ClusterTree, data: ClientData, task: Task) -> State:
    """Walk down: at each node train once, and follow the child whose clients moved likewise."""
    nodes = grown.parent.shape[0]
    place = torch.zeros((), dtype=torch.int64)
    for node in range(nodes):
        model = {k: v[node] for k, v in grown.models.items()}
        change = subtract(fit(task, model, data["adapt"], method.optimizer), model)
        child = best_child(grown, node, task.trainable(change))
        place = torch.where((place == node) & (child >= 0), child, place)
    return {k: v[place] for k, v in grown.models.items()}


def best_child(grown: ClusterTree, node: int, change: State) -> Tensor:
    """Compare a change with the mean direction below each child; -1 if the node has none."""
    below = descendants(grown)  # [nodes, clients]
    flat = torch.cat([value.flatten(1) for value in grown.updates.values()], dim=1)
    unit = flat / flat.norm(dim=1, keepdim=True).clamp(min=1e-30)
    own = torch.cat([change[name].flatten() for name in grown.updates])
    likeness = (below * (unit @ own)).sum(1) / below.sum(1).clamp(min=1)
    is_child = grown.parent == node
    best = torch.where(is_child, likeness, -torch.inf).argmax()
    return torch.where(is_child.any(), best, -1)


def descendants(grown: ClusterTree) -> Tensor:
    """Mark the clients below every node, by walking up from each leaf."""
    nodes = grown.parent.shape[0]
    below = grown.reported.new_zeros(nodes, grown.leaf.shape[0])
    at = grown.leaf
    for _ in range(nodes):
        here = (at[None] == torch.arange(nodes)[:, None]).to(below.dtype)
        below = torch.maximum(below, here)
        at = torch.where(at >= 0, grown.parent[at.clamp(min=0)], -1)
    return below * grown.reported
