"""Clients with different input distributions, found by clustering (Zhang et al. 2021, FedFomo)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motet._core.keys import Key
from motet._core.text import plural
from motet.data._partition.base import Partition, Rows, require_enough, require_whole
from motet.data._partition.counts import deal, encode, raise_to_minimum, share_equally
from motet.data._partition.embedding import Embedding, embedding_named, fingerprint
from motet.data._raw import Raw
from motet.data._sets.cache import cached
from motet.errors import RequestError, one_line


@dataclass(frozen=True, kw_only=True)
class Latent(Partition):
    """Inputs are embedded, reduced by PCA and clustered by k-means; clients share clusters evenly.

    Training and test rows are clustered together, and a client's test rows come from its own
    cluster. The embedded inputs are held in memory while they are clustered.

    Attributes:
        clients: Number of clients.
        groups: Number of clusters, D. With fewer clients than groups a client gets several.
        components: Principal components kept (all, if there are fewer).
        embed: How a row becomes a vector. A function from the array of inputs to one vector per
            row, in a config as "module:function"; a network to be trained for this, by name or as
            a `Trained`; None flattens the inputs. Vectors of a trained network are kept in the
            cache of decoded data.
        minimum: Least number of samples per client.

    Example:
        >>> import motet
        >>> import numpy as np
        >>> inputs = np.repeat([[0.0, 0.0], [9.0, 9.0]], 10, axis=0) + np.arange(20)[:, None] / 100
        >>> raw = motet.data.Raw(inputs, np.zeros(20, np.int64), classes=1)
        >>> latent = Latent(clients=2, groups=2)
        >>> parts = latent.assign(latent.strata(raw, motet.Key(0)), motet.Key(0))
        >>> sorted(rows.tolist() for rows in parts)
        [[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], [10, 11, 12, 13, 14, 15, 16, 17, 18, 19]]
    """

    clients: int
    groups: int
    components: int = 256
    embed: str | Embedding | Callable[[NDArray[Any]], NDArray[Any]] | None = None
    minimum: int = 1

    def __post_init__(self) -> None:
        for name in ("clients", "groups", "components"):
            require_whole(name, getattr(self, name), 1)
        require_whole("minimum", self.minimum, 0)

    def strata(self, raw: Raw, key: Key) -> NDArray[np.int64]:
        if self.groups > len(raw.x):
            raise RequestError(
                f"groups={self.groups} is more than the number of rows, {len(raw.x)}."
            )
        from sklearn.cluster import KMeans
        from sklearn.exceptions import ConvergenceWarning

        key = key.fold("latent")
        reduced = self._reduced(raw, key)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # too few vectors: refused below
            found = KMeans(self.groups, n_init=4, random_state=key.integer(31)).fit_predict(reduced)
        groups = np.asarray(found, np.int64)
        self._require_groups(len(np.unique(groups)))
        return groups

    def _require_groups(self, found: int) -> None:
        if found < self.groups:
            source = "their vectors by embed" if self.embed is not None else "inputs"
            raise RequestError(
                f"groups={self.groups} need as many different vectors, but the rows fall into "
                f"{plural(found, 'group')}, because {source} are alike. Lower "
                "data.partition.groups, or choose another data.partition.embed."
            )

    def _reduced(self, raw: Raw, key: Key) -> NDArray[np.float32]:
        """Reduce the vectors of all rows by PCA; those of a trained network are kept on disk."""
        embed = embedding_named(self.embed) if isinstance(self.embed, str) else self.embed
        if not isinstance(embed, Embedding):
            return self._principal(_vectors(raw.x, embed), key)
        about = fingerprint(raw, embed.identity(), str(self.components), str(key.integer()))

        def build() -> dict[str, NDArray[Any]]:
            return {"vectors": self._principal(embed.vectors(raw, key.fold("embed")), key)}

        return cached(f"embedding-{about[:20]}", build)["vectors"]

    def _principal(self, vectors: NDArray[np.float32], key: Key) -> NDArray[np.float32]:
        from sklearn.decomposition import PCA

        if (vectors == vectors[:1]).all():
            self._require_groups(1)
        kept = min(self.components, *vectors.shape)
        reduced = PCA(kept, random_state=key.integer(31)).fit_transform(vectors)
        return np.asarray(reduced, np.float32)

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


def _vectors(
    x: NDArray[Any], embed: Callable[[NDArray[Any]], NDArray[Any]] | None
) -> NDArray[np.float32]:
    if embed is None:
        return np.asarray(x).reshape(len(x), -1).astype(np.float32)
    try:
        embedded = np.asarray(embed(x), np.float32)
    except Exception as reason:  # a user's function: whatever it raises is about this call
        raise RequestError(
            f"embed: the function failed on a NumPy array of shape {x.shape} and type {x.dtype}: "
            f"{type(reason).__name__}: {one_line(reason)}."
        ) from reason
    if embedded.ndim == 0 or len(embedded) != len(x):
        raise RequestError(
            "embed must return one vector per row, got "
            + ("a number" if embedded.ndim == 0 else f"{len(embedded)}")
            + f" for {len(x)} rows."
        )
    if not np.isfinite(embedded).all():
        row = int(np.flatnonzero(~np.isfinite(embedded.reshape(len(x), -1)).all(axis=1))[0])
        raise RequestError(f"embed must return finite numbers; row {row} has a NaN or an infinity.")
    return embedded.reshape(len(embedded), -1)
