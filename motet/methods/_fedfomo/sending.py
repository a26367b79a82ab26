"""Which models FedFomo's server sends to whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from motet._core.keys import Key
from motet._core.tree import State, tree_map
from motet.errors import RequestError
from motet.method import PerClient, RoundInfo
from motet.methods._fedfomo.exchange import NOBODY, Down, Parcel, Server, pack, parcel, positions

Weighting = Literal["candidate", "leave_one_out"]


@dataclass(frozen=True, kw_only=True)
class Sending:
    """The rules of a download; the fields are those of `FedFomo`."""

    models: int
    explore: float
    decay: float
    weighting: Weighting
    hierarchical: int | None

    def __post_init__(self) -> None:
        least = 2 if self.weighting == "leave_one_out" else 1
        if self.models < least:
            raise RequestError(
                f"models= includes the client's own and must be at least {least} with "
                f"weighting={self.weighting!r}; got {self.models}."
            )
        if not 0 <= self.explore <= 1 or self.decay < 0:
            raise RequestError(
                "explore= is a chance between 0 and 1, and decay= is 0 or more; got "
                f"explore={self.explore} and decay={self.decay}."
            )
        if self.hierarchical is not None and (self.hierarchical < 1 or least == 2):
            raise RequestError(
                "hierarchical= is a number of groups, at least 1, and needs "
                f'weighting="candidate"; got hierarchical={self.hierarchical} with '
                f"weighting={self.weighting!r}."
            )

    def slots(self, clients: int) -> int:
        """Count the models one download can hold."""
        if self.weighting == "leave_one_out":
            return min(self.models, clients)
        own = 1  # is there already
        return min(self.models, clients) - own + self._averages(clients)

    def _averages(self, clients: int) -> int:
        """Count the averages that can be sent: of groups of two or more, and of the groups."""
        if self.hierarchical is None or clients < 2:
            return 0
        if self.hierarchical == 1 or clients == 2:
            return 1  # one group of all clients, or groups of one client each
        return min(self.hierarchical, clients // 2) + 1

    def downloads(self, server: Server, info: RoundInfo) -> PerClient:
        """Pack every client's models. What goes to one depends on no other client of the cohort."""
        row, slots = positions(info), self.slots(len(info.clients))
        averages = self._group_parcels(server, info)

        def download(client: str) -> Down:
            own = row.get(client, NOBODY)
            parcels = averages + self._parcels(server, info, client, own)
            return pack(parcels, own, slots=slots, bank=server.models)

        return PerClient({client: download(client) for client in info.cohort})

    def _parcels(self, server: Server, info: RoundInfo, client: str, own: int) -> list[Parcel]:
        """Wrap a client's chosen models: one by one, or as averages that leave one out."""
        peers = self._peers(server, info, client, own)
        if self.weighting == "candidate":
            return [parcel(server.models, peer) for peer in peers]
        has_own = own != NOBODY and bool(server.uploaded[own])
        members = [own, *peers] if has_own else peers
        if len(members) < 2:
            return []  # the average of one model without that model is nothing
        return [
            Parcel(mean_of(server.models, [m for m in members if m != one]), one) for one in members
        ]

    def _peers(self, server: Server, info: RoundInfo, client: str, own: int) -> list[int]:
        others = server.uploaded.nonzero().flatten().numpy()
        others = others[others != own]
        # A client that is not registered has no row: all affinities are equal.
        row = (
            server.affinity.new_zeros(len(info.clients)) if own == NOBODY else server.affinity[own]
        )
        chance = exploration(self.explore, self.decay, info.number)
        rng = info.key.fold("peers", client).numpy()
        return choose(row.numpy(), others, self.models - 1, chance, rng)

    def _group_parcels(self, server: Server, info: RoundInfo) -> list[Parcel]:
        members = server.uploaded.nonzero().flatten()
        if self.hierarchical is None or len(members) == 0:
            return []
        likes = server.affinity[members][:, members].numpy()
        labels = cluster(likes, self.hierarchical, info.key.fold("groups"))
        groups = [members[labels == g].tolist() for g in np.unique(labels)]
        means = [mean_of(server.models, rows) for rows in groups]
        # Deviates: no model is offered twice. A candidate that arrives twice counts twice in the
        # mixture. The average of one client is that client's model, and the average of one group is
        # that group's; the authors' code sends both.
        averages = [mean for mean, rows in zip(means, groups, strict=True) if len(rows) > 1]
        everybody = [tree_map(_mean, *means)] if len(groups) > 1 else []
        return [Parcel(average, NOBODY) for average in (*averages, *everybody)]


def exploration(explore: float, decay: float, number: int) -> float:
    """Return the chance of a random model in round `number`, from 0: it falls by steps of `decay`.

    >>> [round(exploration(0.3, 0.05, t), 2) for t in range(8)]
    [0.3, 0.25, 0.2, 0.15, 0.1, 0.05, 0.0, 0.0]
    """
    return max(0.0, explore - decay * number)


def choose(
    row: NDArray[np.float64],
    available: NDArray[np.int64],
    room: int,
    chance: float,
    rng: np.random.Generator,
) -> list[int]:
    """Fill `room` slots with different models: the highest affinity left, or by `chance` any left.

    The generator orders equal affinities, so that their position in the list does not matter.
    """
    lots = rng.permutation(len(available))
    left = available[np.lexsort((lots, -row[available]))].tolist()
    chosen: list[int] = []
    while left and len(chosen) < room:
        place = int(rng.integers(len(left))) if rng.random() < chance else 0
        chosen.append(left.pop(place))
    return chosen


def mean_of(bank: State, rows: Sequence[int]) -> State:
    """Average some models of the bank, each counting the same."""
    # Deviates: averages weigh members equally. The authors' code weighs them by training examples,
    # which uploads do not carry.
    return tree_map(lambda leaf: _mean(*leaf[list(rows)]), bank)


def cluster(likes: NDArray[np.float64], groups: int, key: Key) -> NDArray[np.int64]:
    """Group clients by spectral clustering of P, softmaxed by row and made symmetric."""
    if groups == 1 or len(likes) <= groups:
        return np.arange(len(likes)) % groups
    from sklearn.cluster import SpectralClustering

    chances = np.exp(likes - likes.max(1, keepdims=True))
    chances /= chances.sum(1, keepdims=True)
    clustering = SpectralClustering(
        groups, affinity="precomputed", assign_labels="discretize", random_state=key.integer(31)
    )
    return np.asarray(clustering.fit_predict((chances + chances.T) / 2), np.int64)


def _mean(*models: Tensor) -> Tensor:
    stacked = torch.stack(models)
    if not stacked.is_floating_point():
        return stacked.amax(0)  # counters keep the largest
    return stacked.double().mean(0).to(stacked.dtype)
