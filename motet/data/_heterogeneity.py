"""Measures of how much the clients of a federation differ.

With p_i the label distribution of client i and p that of all clients' samples together:

    EMD         sum_c |p_i(c) - p(c)|, the plain L1 distance, from 0 to 2
    JS          Jensen-Shannon divergence of p_i and p in bits, from 0 to 1
    effective   exp(entropy of p_i): the number of equally likely classes with the same entropy
    Gini        of the clients' sizes: 0 if all are equal, close to 1 if one client has everything
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Heterogeneity:
    """Differences between clients; the label measures are None for regression.

    A client without samples in the measured split has NaN and is left out of the means.

    Attributes:
        emd: L1 distance between each client's label distribution and that of all clients.
        js: Jensen-Shannon divergence between the same two, in bits.
        effective_classes: exp(entropy) of each client's label distribution.
        sizes: Samples per client.
        gini: Inequality of the sizes.

    Example:
        >>> import motet
        >>> measured = motet.testing.ragged().data.heterogeneity()
        >>> measured.sizes.tolist(), round(measured.gini, 2)
        ([40, 7, 1, 5, 9, 6], 0.51)
    """

    emd: Floats | None
    js: Floats | None
    effective_classes: Floats | None
    sizes: NDArray[np.int64]
    gini: float

    @property
    def mean_emd(self) -> float | None:
        """Mean over clients."""
        return _mean(self.emd)

    @property
    def mean_js(self) -> float | None:
        """Mean over clients."""
        return _mean(self.js)

    @property
    def mean_effective_classes(self) -> float | None:
        """Mean over clients."""
        return _mean(self.effective_classes)

    def summary(self) -> dict[str, Any]:
        """Return one number per measure, for tables and JSON."""
        return {
            "emd": self.mean_emd,
            "js": self.mean_js,
            "effective_classes": self.mean_effective_classes,
            "gini": self.gini,
            "size_min": int(self.sizes.min()),
            "size_median": float(np.median(self.sizes)),
            "size_max": int(self.sizes.max()),
        }


def measure(histogram: NDArray[np.int64] | None, sizes: NDArray[np.int64]) -> Heterogeneity:
    """Compute all measures from label counts, [clients, classes], and sizes."""
    if histogram is None:
        return Heterogeneity(None, None, None, sizes, gini(sizes))
    own, overall = _shares(histogram), _shares(histogram.sum(axis=0))
    middle = (own + overall) / 2
    return Heterogeneity(
        emd=np.abs(own - overall).sum(axis=1),
        # JS is the entropy of the middle minus the mean entropy; rounding can leave it at -1e-17.
        js=np.maximum(_bits(middle) - (_bits(own) + _bits(overall)) / 2, 0.0),
        effective_classes=np.exp2(_bits(own)),
        sizes=sizes,
        gini=gini(sizes),
    )


def gini(sizes: NDArray[np.int64]) -> float:
    """Gini coefficient: mean absolute difference of two random clients, over twice the mean."""
    ranks = np.arange(1, len(sizes) + 1)
    total = float(sizes.sum()) or 1.0
    weighted = float((ranks * np.sort(sizes)).sum())
    return max(0.0, 2 * weighted / (len(sizes) * total) - (len(sizes) + 1) / len(sizes))


def _shares(counts: NDArray[np.int64]) -> Floats:
    """Divide counts by their sum; NaN where the sum is 0."""
    total = counts.sum(axis=-1, keepdims=True)
    return np.where(total > 0, counts / np.maximum(total, 1), np.nan)


def _bits(shares: Floats) -> Floats:
    """Entropy in bits, with 0 log 0 = 0."""
    logs = np.log2(np.where(shares > 0, shares, 1.0))
    return -np.asarray((shares * logs).sum(axis=-1))


def _mean(values: Floats | None) -> float | None:
    if values is None or np.isnan(values).all():
        return None
    return float(np.nanmean(values))
