"""Unknown variances as discrete distributions, pooled over related estimates.

Three seeds give a variance with two degrees of freedom, which is hardly known at all. But a
comparison has many such variances (one per pair of methods, or one per site), and they are
related. As in limma (Smyth, 2004), each true variance is taken to be a draw from a scaled inverse
chi-squared distribution with `d0` degrees of freedom around `s0`, and all estimates together tell
`d0` and `s0`: a large `d0` means that the variances are alike, and each estimate borrows from the
others. Unlike limma, `d0` and `s0` are not plugged in but averaged over, on a grid, with their
likelihoods as weights: with few estimates they are uncertain, and a claim must not depend on a
lucky guess.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

NODES = 40  # of a spread
# Degrees of freedom of the prior, from "variances have nothing to do with each other" to "equal".
ALIKE = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 64.0])
USUAL = (1.0, 2.0, 4.0, 6.0, 6.0, 6.0)  # how plausible each is, before looking
CAUTIOUS = (1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
LEAST = 0.5  # degrees of freedom: with fewer, hardly anything is known
SCALES = 30  # values of `s0` on the grid
# Probabilities that part a distribution into nodes: dense where the variance is large, because that
# tail decides about small p-values.
EDGES = np.concatenate([[0.0], np.geomspace(1e-10, 0.5, 24), np.linspace(0.5, 1.0, 17)[1:]])


@dataclass(frozen=True)
class Spread:
    """What is known about each of several variances: values and their probabilities.

    Attributes:
        values: Variances, [estimates, nodes].
        weights: Their probabilities, [estimates, nodes]; each row adds up to 1.
    """

    values: np.ndarray
    weights: np.ndarray

    def __len__(self) -> int:
        return len(self.values)

    def scaled(self, factor: float | np.ndarray) -> Spread:
        """Multiply the variances, by one factor or by one per estimate."""
        return Spread(self.values * np.reshape(factor, (-1, 1)), self.weights)

    def less(self, known: np.ndarray) -> Spread:
        """Subtract a known part of each variance; what is left is at least 0."""
        return Spread(np.maximum(self.values - np.reshape(known, (-1, 1)), 0.0), self.weights)

    def at_least(self, floor: np.ndarray) -> Spread:
        """Raise variances to a floor, one per estimate."""
        return Spread(np.maximum(self.values, np.reshape(floor, (-1, 1))), self.weights)

    def plus(self, other: Spread) -> Spread:
        """Add an independent variance, estimate by estimate."""
        rows = max(len(self), len(other))
        sums = self.values[:, :, None] + other.values[:, None, :]
        weights = self.weights[:, :, None] * other.weights[:, None, :]
        wide = (rows, sums.shape[1] * sums.shape[2])
        return _binned(
            np.broadcast_to(sums, (rows, *sums.shape[1:])).reshape(wide),
            np.broadcast_to(weights, (rows, *weights.shape[1:])).reshape(wide),
        )

    def taken(self, rows: np.ndarray) -> Spread:
        """Select estimates by position."""
        return Spread(self.values[rows], self.weights[rows])

    def mean(self) -> np.ndarray:
        """Return a central value of each variance: the inverse of the mean precision."""
        with np.errstate(divide="ignore"):
            precision = (self.weights / np.maximum(self.values, 1e-300)).sum(1)
        return np.asarray(np.where(precision > 1e290, 0.0, 1.0 / precision))

    def above(self, distance: np.ndarray) -> np.ndarray:
        """Return the chance that an error with this variance exceeds a distance, on one side."""
        from scipy.special import ndtr

        away = np.reshape(distance, (-1, 1))
        with np.errstate(divide="ignore", invalid="ignore"):
            tails = ndtr(-away / np.sqrt(self.values))
        certain = np.where(away > 0, 0.0, np.where(away < 0, 1.0, 0.5))
        tails = np.where(self.values > 0, tails, certain)
        return np.asarray((self.weights * tails).sum(1))

    def reach(self, risk: float) -> np.ndarray:
        """Return the distance that an error exceeds with this risk, on one side; by bisection."""
        low = np.zeros(len(self))
        high = 1e3 * np.sqrt(self.values.max(1, initial=0.0))
        for _ in range(60):
            middle = (low + high) / 2
            beyond = self.above(middle) > risk
            low, high = np.where(beyond, middle, low), np.where(beyond, high, middle)
        return np.asarray((low + high) / 2)


def known(variances: np.ndarray) -> Spread:
    """Return variances that are certain."""
    values = np.asarray(variances, dtype=float).reshape(-1, 1)
    return Spread(values, np.ones_like(values))


def estimated(variances: np.ndarray, freedom: np.ndarray) -> Spread:
    """Return what each estimate tells by itself: Student's t, if used alone.

    Args:
        variances: Unbiased estimates.
        freedom: Degrees of freedom of each.
    """
    values, degrees = np.broadcast_arrays(np.asarray(variances, float), np.asarray(freedom, float))
    quantiles, weights = _inverse_chi2(degrees)
    return Spread(values[:, None] * quantiles, weights)


def pooled(
    variances: np.ndarray,
    freedom: np.ndarray,
    *,
    independent: float,
    prior: Sequence[float] = USUAL,
) -> Spread:
    """Return what each estimate tells in the light of all of them.

    Args:
        variances: Unbiased estimates.
        freedom: Degrees of freedom of each; an estimate with none says nothing about the others.
        independent: The number of estimates that are independent; their joint likelihood counts
            as if there were this many.
        prior: Plausibility of each value of `ALIKE`.
    """
    values, degrees = np.broadcast_arrays(np.asarray(variances, float), np.asarray(freedom, float))
    if not (values[degrees > 0] > 0).any():
        return estimated(values, degrees)
    alike, scales, log_weights = _hyper_grid(values, degrees, independent)
    log_weights += np.repeat(np.log(prior), SCALES)
    share = np.exp(log_weights - log_weights.max())
    share /= share.sum()
    kept = share > 1e-6  # the rest would only cost time
    alike, scales, share = alike[kept], scales[kept], share[kept]
    total = alike + degrees[:, None]
    centre = (alike * scales + degrees[:, None] * values[:, None]) / total
    quantiles, weights = _inverse_chi2(total.ravel())
    nodes = centre[:, :, None] * quantiles.reshape(*total.shape, -1)
    chances = share[None, :, None] * weights.reshape(*total.shape, -1)
    wide = (len(values), -1)
    return _binned(nodes.reshape(wide), chances.reshape(wide))


def _hyper_grid(
    values: np.ndarray, degrees: np.ndarray, independent: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return `d0`, `s0` squared and their log likelihood, for every point of the grid."""
    from scipy.special import betaln

    useful = degrees > 0
    v, f = values[useful], degrees[useful]
    positive = v[v > 0]
    grid = np.geomspace(positive.min() / 30, positive.max() * 30, SCALES)
    alike, scales = (axis.ravel() for axis in np.meshgrid(ALIKE, grid, indexing="ij"))
    ratio = f / (alike * scales)[:, None]  # of the marginal F distribution
    log_density = (
        f / 2 * np.log(ratio)
        - (alike[:, None] + f) / 2 * np.log1p(ratio * v)
        - betaln(f / 2, alike[:, None] / 2)
    )
    count = min(1.0, independent / len(v))
    return alike, scales, count * log_density.sum(1)


def _inverse_chi2(degrees: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Discretize `degrees / chi2(degrees)`: values and weights, [degrees, nodes]."""
    from scipy.special import chdtri

    unique, back = np.unique(np.maximum(degrees, LEAST), return_inverse=True)
    middles = np.diff(EDGES[1:]) / np.diff(np.log(EDGES[1:]))
    chances = np.concatenate([[EDGES[1] / 2], middles])
    values = unique[:, None] / chdtri(unique[:, None], 1 - chances[None, :])
    weights = np.broadcast_to(np.diff(EDGES), values.shape)
    return values[back], weights[back]


def _binned(values: np.ndarray, weights: np.ndarray) -> Spread:
    """Merge nodes that are close to each other, row by row."""
    rows = len(values)
    with np.errstate(divide="ignore"):
        logs = np.log(values)
    finite = np.isfinite(logs)
    low = np.where(finite, logs, np.inf).min(1)
    high = np.where(finite, logs, -np.inf).max(1)
    width = np.maximum(high - low, 1e-12) / (NODES - 2)
    place = np.where(finite, 1 + (logs - low[:, None]) / width[:, None], 0.0)
    place = np.clip(place, 0, NODES - 1).astype(np.intp)
    place += NODES * np.arange(rows)[:, None]
    mass = np.bincount(place.ravel(), weights.ravel(), rows * NODES)
    moment = np.bincount(place.ravel(), (weights * values).ravel(), rows * NODES)
    centres = np.divide(moment, mass, out=np.zeros_like(moment), where=mass > 0)
    return Spread(centres.reshape(rows, NODES), mass.reshape(rows, NODES))
