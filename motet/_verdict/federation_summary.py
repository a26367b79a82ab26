"""A summary of the data for readers of a comparison: sizes, labels and how clients differ."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from motet.data._federation import Federation
from motet.data._raw import SPLITS


@dataclass(frozen=True, kw_only=True)
class FederationSummary:
    """A federation without its examples, as JSON values.

    Attributes:
        labels: Names of the classes, if there are any.
        sizes: Client -> split -> examples.
        histograms: Client -> training examples of each class; empty for regression.
        emd: Client -> L1 distance between its label shares and those of all clients, from 0 to 2.
    """

    name: str = ""
    labels: tuple[str, ...] | None = None
    sizes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    histograms: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    emd: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, federation: Federation) -> FederationSummary:
        """Summarize a federation."""
        clients, emd = federation.clients, federation.heterogeneity().emd
        counts = [] if federation.classes is None else federation.histogram("train").tolist()
        return cls(
            name=federation.name,
            labels=federation.labels,
            sizes={c: {s: federation.size(c, s) for s in SPLITS} for c in clients},
            histograms=dict(zip(clients, map(tuple, counts), strict=False)),
            emd={} if emd is None else _known(dict(zip(clients, emd.tolist(), strict=True))),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, written: Mapping[str, Any]) -> FederationSummary:
        """Read what `to_dict` wrote."""
        labels, histograms = written["labels"], written["histograms"]
        return cls(
            name=written["name"],
            labels=None if labels is None else tuple(labels),
            sizes=written["sizes"],
            histograms={client: tuple(counts) for client, counts in histograms.items()},
            emd=written["emd"],
        )


def _known(distances: dict[str, float]) -> dict[str, float]:
    """Leave out clients without training data."""
    return {client: value for client, value in distances.items() if not math.isnan(value)}
