"""The server's tree of clusters: every node has a model, every client belongs to one leaf."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from motet._core import tree
from motet._core.studies import MOST_POINTS, FinishedRun, Study, evenly
from motet._core.tree import State


class ClusterTree(NamedTuple):
    """A binary tree with a fixed number of places, so that it can be saved and restored."""

    models: State  # [nodes, ...]
    updates: State  # [clients, ...] each client's last change of the parameters
    reported: Tensor  # [clients] 1 once a client has reported
    leaf: Tensor  # [clients] the node each client belongs to
    parent: Tensor  # [nodes], -1 for the root and for places not used yet
    used: Tensor  # how many nodes there are

    def members(self, node: int) -> list[int]:
        """List the positions of a leaf's clients: positions in the whole federation, always."""
        found: list[int] = (self.leaf == node).nonzero().flatten().tolist()
        return found

    def leaves(self) -> list[int]:
        """List the nodes that clients can belong to."""
        parents = set(self.parent.tolist())
        return [node for node in range(int(self.used)) if node not in parents]

    def has_room(self) -> bool:
        """Tell whether a leaf can still be split."""
        return int(self.used) + 2 <= len(self.parent)


def plant(initial: State, parameters: State, clients: int, leaves: int) -> ClusterTree:
    """Make a tree of one node, with room for a number of leaves."""
    nodes = 2 * leaves - 1
    return ClusterTree(
        models={k: v.expand(nodes, *v.shape).clone() for k, v in initial.items()},
        updates={k: v.new_zeros(clients, *v.shape) for k, v in parameters.items()},
        reported=torch.zeros(clients, dtype=tree.float_type(initial)),
        leaf=torch.zeros(clients, dtype=torch.int64),
        parent=torch.full((nodes,), -1),
        used=torch.tensor(1),
    )


def split(grown: ClusterTree, node: int, left: Sequence[int], right: Sequence[int]) -> ClusterTree:
    """Give a leaf two children that start from its model, and move its clients to them."""
    first = int(grown.used)
    models, leaf, parent = tree.clone(grown.models), grown.leaf.clone(), grown.parent.clone()
    for child, members in ((first, left), (first + 1, right)):
        parent[child] = node
        leaf[list(members)] = child
        for value in models.values():
            value[child] = value[node]
    return grown._replace(models=models, leaf=leaf, parent=parent, used=torch.tensor(first + 2))


def flat_updates(grown: ClusterTree, members: Sequence[int]) -> Tensor:
    """Lay the members' last updates side by side, [members, parameters], in double precision."""
    rows = [value[list(members)].double().flatten(1) for value in grown.updates.values()]
    return torch.cat(rows, dim=1)


def cosines(updates: Tensor) -> Tensor:
    """Compare updates by direction."""
    unit = updates / updates.norm(dim=1, keepdim=True).clamp(min=1e-30)
    similarity: Tensor = (unit @ unit.mT).clamp(-1, 1)
    return similarity


def bipartition(similarity: Tensor) -> np.ndarray:
    """Cut a cluster in two by complete linkage; True marks the second half."""
    from sklearn.cluster import AgglomerativeClustering

    cut = AgglomerativeClustering(n_clusters=2, metric="precomputed", linkage="complete")
    second: np.ndarray = cut.fit_predict((1 - similarity).numpy()) == 1
    return second


def tree_study(run: FinishedRun) -> Study:
    """Show who was split from whom, and when."""
    clients = sorted(run.setting.federation.clients)
    shown = set(evenly(range(len(clients)), MOST_POINTS))
    parents: list[int] = run.server.parent[: int(run.server.used)].tolist()
    below = {node: members_below(run.server, node) for node in range(len(parents))}
    nodes = [
        {
            "id": node,
            "parent": None if parent < 0 else parent,
            "label": f"{len(below[node])} clients" if node else f"all {len(clients)} clients",
            "round": _round_of(node, run),
            "clients": [clients[i] for i in below[node] if i in shown],
        }
        for node, parent in enumerate(parents)
    ]
    note = "Every node is a cluster with a model of its own; a leaf is what its clients are served."
    return Study("tree", "How the clients were split", note, {"nodes": nodes})


def members_below(grown: ClusterTree, node: int) -> list[int]:
    """List the positions of all clients that belong to a node or to one of its children."""
    children = (grown.parent == node).nonzero().flatten().tolist()
    return sorted([*grown.members(node), *(i for c in children for i in members_below(grown, c))])


def _round_of(node: int, run: FinishedRun) -> int:
    """Find the round after which a node was first there; the root was there from the start."""
    if node == 0:
        return 0
    notes: Sequence[Mapping[str, Any]] = run.notes
    return next((n["round"] for n in notes if len(n["parents"]) > node), run.rounds_done)
