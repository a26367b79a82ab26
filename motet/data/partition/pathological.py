"""A few classes per client, the hardest label skew of the literature (McMahan et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motet.data.partition.base import Partition, Rows, require_enough, require_whole
from motet.data.partition.counts import Counts, deal, encode, share_equally
from motet.errors import RequestError
from motet.keys import Key


@dataclass(frozen=True, kw_only=True)
class Pathological(Partition):
    """Every client holds exactly `classes` classes; a class is split equally among its holders.

    Holders are dealt so that the classes have nearly equally many. With fewer places (`clients *
    classes`) than there are classes, some classes go to nobody and their rows are left out.

    Attributes:
        clients: Number of clients.
        classes: Classes per client, k.
        minimum: Least number of samples per client; the equal split must reach it.
    """

    clients: int
    classes: int
    minimum: int = 1

    def __post_init__(self) -> None:
        require_whole("clients", self.clients, 1)
        require_whole("classes", self.classes, 1)
        require_whole("minimum", self.minimum, 0)

    def assign(
        self, labels: NDArray[Any], key: Key, coarse: NDArray[Any] | None = None
    ) -> list[Rows]:
        require_enough(len(labels), self.clients, self.minimum)
        codes, stock = encode(labels)
        key = key.fold("pathological")
        holders = self._holders_per_class(stock, key.fold("spare").numpy())
        counts = share_equally(_deal_classes(holders, self.clients, key), stock)
        self._require_minimum(counts)
        return deal(codes, counts, key)

    def _holders_per_class(self, stock: Counts, rng: np.random.Generator) -> Counts:
        """Decide how many clients hold each class: equally many, but no more than it has rows."""
        if self.classes > len(stock):
            raise RequestError(
                f"more classes per client than exist: classes={self.classes} was asked for, "
                f"the labels have {len(stock)}."
            )
        room, places = np.minimum(stock, self.clients), self.clients * self.classes
        if room.sum() < places:
            raise RequestError(
                f"{self.clients} clients with {self.classes} classes each need {places} shares of "
                f"a class; the rarer classes have too few rows for more than {room.sum()}. "
                "Lower `clients` or `classes`."
            )
        return _fill_level(room, places, rng)

    def _require_minimum(self, counts: Counts) -> None:
        smallest = int(counts.sum(axis=1).min())
        if smallest < self.minimum:
            raise RequestError(
                f"splitting each class equally leaves a client with {smallest} samples, "
                f"minimum={self.minimum} was asked for. Lower `minimum` or `clients`, "
                "or raise `classes`."
            )


def _fill_level(room: Counts, total: int, rng: np.random.Generator) -> Counts:
    """Pour `total` into vessels of size `room` to one level; who gets the odd rest is drawn."""
    poured = [int(np.minimum(room, level).sum()) for level in range(int(room.max()) + 1)]
    level = int(np.searchsorted(poured, total, "right")) - 1
    filled = np.minimum(room, level)
    open_vessels = rng.permutation(np.flatnonzero(room > level))
    filled[open_vessels[: total - filled.sum()]] += 1
    return filled


def _deal_classes(holders: Counts, clients: int, key: Key) -> NDArray[np.bool_]:
    """Give each client equally many different classes, those with most places left first.

    A class with as many places as clients are left is always among the first, so the deal comes
    out even.
    """
    left, per_client = holders.copy(), int(holders.sum()) // clients
    holds = np.zeros((clients, len(holders)), bool)
    for client in range(clients):
        shuffled = key.fold("classes", client).numpy().permutation(len(left))
        chosen = shuffled[np.argsort(-left[shuffled], kind="stable")[:per_client]]
        holds[client, chosen] = True
        left[chosen] -= 1
    return holds
