"""Clients that differ in what their inputs look like (Zhang et al. 2021, FedFomo)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motet.data.partition.base import Partition, Rows, require_enough, require_whole
from motet.data.partition.counts import deal, encode, raise_to_minimum, share_equally
from motet.data.raw import Raw
from motet.errors import RequestError
from motet.keys import Key


@dataclass(frozen=True, kw_only=True)
class Latent(Partition):
    """Inputs are embedded, reduced by PCA and clustered by k-means; clients share clusters evenly.

    Training and test rows are clustered together, and a client's test rows come from its own
    cluster. The embedded inputs are held in memory while they are clustered.

    Attributes:
        clients: Number of clients.
        groups: Number of clusters, D. With fewer clients than groups a client gets several.
        components: Principal components kept (all, where there are fewer).
        embed: Maps the array of inputs to one vector per row; None flattens the inputs.
        minimum: Least number of samples per client.
    """

    clients: int
    groups: int
    components: int = 256
    embed: Callable[[NDArray[Any]], NDArray[Any]] | None = None
    minimum: int = 1

    def __post_init__(self) -> None:
        for name in ("clients", "groups", "components"):
            require_whole(name, getattr(self, name), 1)
        require_whole("minimum", self.minimum, 0)

    def strata(self, raw: Raw, key: Key) -> NDArray[np.int64]:
        if self.groups > len(raw.x):
            raise RequestError(
                f"groups={self.groups} is more than the {len(raw.x)} rows there are."
            )
        vectors = self._vectors(raw.x)
        from sklearn.cluster import KMeans
        from sklearn.decomposition import PCA

        seed = key.fold("latent").integer(31)
        reduced = PCA(min(self.components, *vectors.shape), random_state=seed).fit_transform(
            vectors
        )
        groups = KMeans(self.groups, n_init=4, random_state=seed).fit_predict(reduced)
        return np.asarray(groups, np.int64)

    def _vectors(self, x: NDArray[Any]) -> NDArray[np.float32]:
        embedded = np.asarray(x) if self.embed is None else np.asarray(self.embed(x))
        if len(embedded) != len(x):
            raise RequestError(
                f"embed must return one vector per row; {len(embedded)} came for {len(x)} rows."
            )
        return embedded.reshape(len(embedded), -1).astype(np.float32)

    def assign(
        self, labels: NDArray[Any], key: Key, coarse: NDArray[Any] | None = None
    ) -> list[Rows]:
        """Divide rows whose `labels` are their groups."""
        require_enough(len(labels), self.clients, self.minimum)
        codes, stock = encode(labels)
        turns = np.arange(max(self.clients, len(stock)))
        holds = np.zeros((self.clients, len(stock)), bool)
        holds[turns % self.clients, turns % len(stock)] = True
        return deal(
            codes, raise_to_minimum(share_equally(holds, stock), self.minimum), key.fold("latent")
        )
