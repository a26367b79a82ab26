"""Partitions that ignore the labels: `IID` and `QuantitySkew`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

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
from motet.data._partition.counts import apportion, deal, raise_to_minimum


@dataclass(frozen=True, kw_only=True)
class IID(Partition):
    """Every client draws from the same distribution; sizes differ by one at most.

    Attributes:
        clients: Number of clients.
        minimum: Minimum number of samples per client.

    Example:
        >>> import motet
        >>> len(motet.data.load("digits", motet.data.IID(clients=3)).clients)
        3
    """

    needs_classes: ClassVar[bool] = False
    clients: int
    minimum: int = 1

    def __post_init__(self) -> None:
        require_whole("clients", self.clients, 1)
        require_whole("minimum", self.minimum, 0)

    def assign(
        self, labels: NDArray[Any], key: Key, coarse: NDArray[Any] | None = None
    ) -> list[Rows]:
        require_enough(len(labels), self.clients, self.minimum)
        sizes = apportion(len(labels), np.ones(self.clients, np.int64))
        return deal(np.zeros(len(labels), np.int64), sizes[:, None], key.fold("iid"))


@dataclass(frozen=True, kw_only=True)
class QuantitySkew(Partition):
    """Same distribution, different sizes: the clients' shares are drawn from Dirichlet(alpha).

    Attributes:
        clients: Number of clients.
        alpha: Concentration; large means equal sizes, small means that a few clients own nearly
            everything.
        minimum: Minimum number of samples per client.

    Example:
        >>> import motet
        >>> len(motet.data.load("digits", motet.data.QuantitySkew(clients=3, alpha=1.0)).clients)
        3
    """

    needs_classes: ClassVar[bool] = False
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
        key = key.fold("quantity-skew")
        shares = key.fold("shares").numpy().dirichlet(np.full(self.clients, self.alpha))
        sizes = raise_to_minimum(apportion(len(labels), shares)[:, None], self.minimum)
        return deal(np.zeros(len(labels), np.int64), sizes, key)
