"""A few classes per client, the strongest label skew in the literature (McMahan et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motet._core.keys import Key
from motet.data._partition.base import Partition, Rows, require_enough, require_whole
from motet.data._partition.counts import Counts, deal, encode, share_equally
from motet.errors import RequestError


@dataclass(frozen=True, kw_only=True)
class Pathological(Partition):
    """Every client holds exactly `classes` classes; a class is split equally among its holders.

    All classes have nearly the same number of holders. If `clients * classes` is below the number
    of classes, some classes have no holder and their rows are left out.

    Attributes:
        clients: Number of clients.
        classes: Classes per client, k.
        minimum: Minimum number of samples per client; the equal split must reach it.

    Example:
        >>> import motet
        >>> len(motet.data.load("digits", motet.data.Pathological(clients=3, classes=4)).clients)
        3
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
        """Choose the number of holders per class: equal, but no more than the class has rows."""
        if self.classes > len(stock):
            raise RequestError(
                f"more classes per client than exist: got classes={self.classes}, but the data "
                f"have {len(stock)}."
            )
        room, places = np.minimum(stock, self.clients), self.clients * self.classes
        if room.sum() < places:
            raise RequestError(
                f"{self.clients} clients with {self.classes} classes each need {places} shares of "
                f"a class; the rare classes have too few rows for more than {room.sum()}. "
                "Lower `clients` or `classes`."
            )
        return _fill_level(room, places, rng)

    def _require_minimum(self, counts: Counts) -> None:
        smallest = int(counts.sum(axis=1).min())
        if smallest < self.minimum:
            raise RequestError(
                f"splitting each class equally leaves a client with {smallest} samples, below "
                f"minimum={self.minimum}. Lower `minimum` or `clients`, or raise `classes`."
            )


def _fill_level(room: Counts, total: int, rng: np.random.Generator) -> Counts:
    """Divide `total` equally among places of size `room`; the remainder is drawn at random."""
    totals = [int(np.minimum(room, level).sum()) for level in range(int(room.max()) + 1)]
    level = int(np.searchsorted(totals, total, "right")) - 1
    filled = np.minimum(room, level)
    not_full = rng.permutation(np.flatnonzero(room > level))
    filled[not_full[: total - filled.sum()]] += 1
    return filled


def _deal_classes(holders: Counts, clients: int, key: Key) -> NDArray[np.bool_]:
    """Give each client the same number of distinct classes, those with most holders missing first.

    A class that still needs every remaining client is always among the first, so every class gets
    its number of holders.
    """
    left, per_client = holders.copy(), int(holders.sum()) // clients
    holds = np.zeros((clients, len(holders)), bool)
    for client in range(clients):
        shuffled = key.fold("classes", client).numpy().permutation(len(left))
        chosen = shuffled[np.argsort(-left[shuffled], kind="stable")[:per_client]]
        holds[client, chosen] = True
        left[chosen] -= 1
    return holds
