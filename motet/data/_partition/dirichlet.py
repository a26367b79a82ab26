"""Adjustable label skew: class proportions drawn from Dirichlet distributions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motet._core.keys import Key
from motet.data._partition.base import (
    Partition,
    Rows,
    require_enough,
    require_positive,
    require_whole,
)
from motet.data._partition.counts import Counts, apportion, deal, encode, raise_to_minimum
from motet.errors import CapabilityError


@dataclass(frozen=True, kw_only=True)
class Dirichlet(Partition):
    """Each class is shared out in proportions drawn from Dirichlet(alpha) (Hsu et al. 2019).

    Clients below `minimum` are filled up from the others; proportions are never redrawn.

    Attributes:
        clients: Number of clients.
        alpha: Concentration; large approaches IID, small gives each class to a single client.
        minimum: Minimum number of samples per client.

    Example:
        >>> import motet
        >>> len(motet.data.load("digits", motet.data.Dirichlet(clients=3, alpha=0.5)).clients)
        3
    """

    clients: int
    alpha: float
    minimum: int = 10

    def __post_init__(self) -> None:
        require_whole("clients", self.clients, 1)
        require_positive("alpha", self.alpha)
        require_whole("minimum", self.minimum, 0)

    def assign(
        self, labels: NDArray[Any], key: Key, coarse: NDArray[Any] | None = None
    ) -> list[Rows]:
        require_enough(len(labels), self.clients, self.minimum)
        codes, stock = encode(labels)
        key = key.fold("dirichlet")
        drawn = [self._share(int(rows), key.fold("class", c)) for c, rows in enumerate(stock)]
        return deal(codes, raise_to_minimum(np.stack(drawn, axis=1), self.minimum), key)

    def _share(self, rows: int, key: Key) -> Counts:
        return apportion(rows, key.numpy().dirichlet(np.full(self.clients, self.alpha)))


@dataclass(frozen=True, kw_only=True)
class TwoLevelDirichlet(Partition):
    """Pachinko allocation: a mix of coarse labels per client, and of fine labels within each.

    A client draws theta ~ Dirichlet(alpha) over coarse labels and phi_c ~ Dirichlet(beta) over the
    fine labels of each, then its equal share of rows without replacement; the weight of an
    exhausted label goes to the other labels of its group (Reddi et al. 2021). Later clients
    therefore draw from what is left.

    Attributes:
        clients: Number of clients, all of the same size.
        alpha: Concentration over coarse labels.
        beta: Concentration over the fine labels of a coarse one.
        minimum: Minimum number of samples per client.

    Example:
        >>> import motet
        >>> import numpy as np
        >>> fine, coarse = np.arange(40) % 4, np.arange(40) % 2
        >>> parts = TwoLevelDirichlet(clients=4, alpha=0.5).assign(fine, motet.Key(0), coarse)
        >>> [len(rows) for rows in parts]
        [10, 10, 10, 10]
    """

    clients: int
    alpha: float
    beta: float = 10.0
    minimum: int = 1

    def __post_init__(self) -> None:
        require_whole("clients", self.clients, 1)
        require_positive("alpha", self.alpha)
        require_positive("beta", self.beta)
        require_whole("minimum", self.minimum, 0)

    def assign(
        self, labels: NDArray[Any], key: Key, coarse: NDArray[Any] | None = None
    ) -> list[Rows]:
        require_enough(len(labels), self.clients, self.minimum)
        codes, family = _pair_codes(labels, coarse)
        stock, key = np.bincount(codes), key.fold("two-level-dirichlet")
        counts = np.zeros((self.clients, len(stock)), np.int64)
        for client, size in enumerate(apportion(len(codes), np.ones(self.clients, np.int64))):
            counts[client] = self._draw(int(size), stock, family, key.fold("client", client))
            stock = stock - counts[client]
        return deal(codes, counts, key)

    def _draw(self, size: int, stock: Counts, family: Counts, key: Key) -> Counts:
        rng = key.numpy()
        families = [np.flatnonzero(family == f) for f in range(family.max() + 1)]
        family_stock = np.array([stock[members].sum() for members in families])
        theta = rng.dirichlet(np.full(len(families), self.alpha))
        counts = np.zeros_like(stock)
        for members, need in zip(
            families, draw_capped(size, theta, family_stock, rng), strict=True
        ):
            phi = rng.dirichlet(np.full(len(members), self.beta))
            counts[members] = draw_capped(int(need), phi, stock[members], rng)
        return counts


def _pair_codes(labels: NDArray[Any], coarse: NDArray[Any] | None) -> tuple[Counts, Counts]:
    """Replace (coarse, fine) pairs by their rank; return them and the coarse code of each pair."""
    if coarse is None:
        raise CapabilityError(
            "TwoLevelDirichlet needs a coarse label for each label, but these data have none. "
            "Use Dirichlet, or a data set with coarse labels such as cifar100."
        )
    fine_codes, _ = encode(labels)
    coarse_codes, _ = encode(coarse)
    pairs, codes = np.unique(
        np.stack([coarse_codes, fine_codes], axis=1), axis=0, return_inverse=True
    )
    return codes.reshape(-1).astype(np.int64), pairs[:, 0]


def draw_capped(
    total: int, shares: NDArray[Any], stock: Counts, rng: np.random.Generator
) -> Counts:
    """Draw `total` items by `shares`; an exhausted item's probability goes to the others.

    What exceeds the stock is redrawn from the remaining items: every pass completes the draw or
    exhausts an item, so there are at most as many passes as items.
    """
    drawn = np.zeros_like(stock)
    while missing := total - int(drawn.sum()):
        left = np.flatnonzero(drawn < stock)
        weights = shares[left]
        if not weights.sum() > 0:  # a small alpha underflows: all remaining items have share zero
            weights = (stock - drawn)[left].astype(np.float64)
        drawn[left] += rng.multinomial(missing, weights / weights.sum())
        drawn = np.minimum(drawn, stock)
    return drawn
