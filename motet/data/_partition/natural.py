"""Natural clients: the writers, roles, hospitals or phones that the rows belong to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motet._core.keys import Key
from motet.data._partition.base import Partition, Rows, require_whole
from motet.data._partition.counts import encode, group_rows
from motet.data._raw import Raw
from motet.errors import CapabilityError, DataError, RequestError


@dataclass(frozen=True, kw_only=True)
class Natural(Partition):
    """Every row goes to its natural client.

    Attributes:
        clients: Number of clients to draw; None takes all.
        minimum: Clients with fewer rows to train on are left out.

    Example:
        >>> import motet
        >>> Natural(clients=2).assign(["b", "a", "b", "c"], motet.Key(0))
        [array([1]), array([0, 2])]
    """

    clients: int | None = None
    minimum: int = 1

    def __post_init__(self) -> None:
        if self.clients is not None:
            require_whole("clients", self.clients, 1)
        require_whole("minimum", self.minimum, 1)

    def strata(self, raw: Raw, key: Key) -> NDArray[np.int64]:
        if raw.clients is None:
            raise CapabilityError(
                "Natural needs a client for every row, but these data have none. "
                "Divide them with IID, Dirichlet or Pathological."
            )
        return encode(raw.clients)[0]

    def assign(
        self, labels: NDArray[Any], key: Key, coarse: NDArray[Any] | None = None
    ) -> list[Rows]:
        """Divide rows whose `labels` are their clients."""
        codes, stock = encode(labels)
        large = np.flatnonzero(stock >= self.minimum)
        wanted = len(large) if self.clients is None else self.clients
        if not len(stock):
            raise DataError(
                "no client has rows to train on: every row is of the test set, or of none. Get "
                "the files again."
            )
        if wanted > len(large) or not wanted:
            raise RequestError(
                f"expected {wanted or 'some'} clients with at least {self.minimum} samples; "
                f"{len(large)} of {len(stock)} have that many. Lower `clients` or `minimum`."
            )
        drawn = key.fold("natural").numpy().permutation(large)[:wanted]
        rows = group_rows(codes, len(stock))
        return [rows[client] for client in np.sort(drawn)]

    def names(self, raw: Raw, parts: list[Rows]) -> tuple[str, ...]:
        assert raw.clients is not None
        return tuple(str(raw.clients[rows[0]]) for rows in parts)
