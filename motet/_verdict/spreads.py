"""Unknown variances as discrete distributions, pooled over related estimates.

Three seeds give a variance with two degrees of freedom, which is hardly known at all. But a
comparison has many such variances (one per pair of methods, or one per site), and they are
related. As in limma (Smyth, 2004), each true variance is taken to be a draw from a scaled inverse
chi-squared distribution with `d0` degrees of freedom around `s0`, and all estimates together tell
`d0` and `s0`: a large `d0` means that the variances are alike, and each estimate borrows from the
others. Three things are different from limma:

- `d0` and `s0` are not plugged in but averaged over, on a grid, with their likelihoods as weights:
  with few estimates they are uncertain, and a claim must not depend on a lucky guess.
- A part of each estimate may be explained already (by the number of test examples, say). Only the
  rest is unknown, so that much less has to be borrowed.
- However alike the estimates look, any of them may belong to an outlier that happened to look calm:
  a share of the weight always stays with "variances have little to do with each other".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

NODES = 40  # of a spread
# Degrees of freedom of the prior, from "variances have little to do with each other" to "equal".
ALIKE = np.array([0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 64.0])
LEAST = 0.5  # degrees of freedom: with fewer, hardly anything is known
SCALES = 30  # values of `s0` on the grid
WIDEST = 1e8  # ratio of variances beyond which a smaller one counts as none
PER_DECADE = 5  # values of a variance, per factor of 10
DOUBT = 3  # degrees of freedom that a variance must have for half of it to be subtracted
# Probabilities that part a distribution into nodes: dense where the variance is large, because that
# tail decides about small p-values.
EDGES = np.concatenate([[0.0], np.geomspace(1e-10, 0.5, 24), np.linspace(0.5, 1.0, 17)[1:]])


@dataclass(frozen=True)
class Trust:
    """How far estimates may borrow from each other.

    Attributes:
        alike: How plausible each value of `ALIKE` is, before looking.
        outliers: How many of the estimates may be outliers: they give the smallest of `ALIKE` a
            share of the weight that nothing takes away.
        explained: Whether the explained part of a variance counts as known, if that makes a result
            more certain.
    """

    alike: tuple[float, ...]
    outliers: float
    explained: bool


USUAL = Trust((0.5, 1.0, 2.0, 4.0, 6.0, 6.0, 6.0), outliers=0.5, explained=True)
CAUTIOUS = Trust((1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0), outliers=7.5, explained=False)


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

    def beyond(self, known: np.ndarray) -> Spread:
        """Add a known part to each variance."""
        return Spread(self.values + np.reshape(known, (-1, 1)), self.weights)

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
    trust: Trust = USUAL,
    tests: float = np.inf,
    explained: np.ndarray | float = 0.0,
) -> Spread:
    """Return what each estimate tells about its unexplained part, in the light of all of them.

    Args:
        variances: Unbiased estimates.
        freedom: Degrees of freedom of each; an estimate with none says nothing about the others.
        independent: The number of estimates that are independent; their joint likelihood counts
            as if there were this many.
        trust: How far estimates may borrow from each other.
        tests: The number of tests that a correction counts. It counts an outlier once for every
            other method, so the share of outliers is divided by it. Default: no outliers.
        explained: The part of each true variance that is known. It is not part of the result.
    """
    v, f, known_part = (
        np.asarray(a, float) for a in np.broadcast_arrays(variances, freedom, explained)
    )
    if not (v[f > 0] > 0).any() and not known_part.any():
        return known(np.zeros(len(v)))
    grid = _Grid.over(v[f > 0], known_part)
    total = grid.nodes[:, None] + known_part  # [nodes, estimates]
    log_likelihood = -(f / 2) * (np.log(total) + v / total)  # of a scaled chi-squared variable
    likelihood = np.exp(log_likelihood - log_likelihood.max(0))
    marginal = np.maximum(grid.prior @ likelihood, 1e-300)  # [points of the grid, estimates]
    count = min(1.0, independent / max((f > 0).sum(), 1))
    outliers = min(1.0, trust.outliers / tests)
    share = _shares(grid.alike, count * np.log(marginal[:, f > 0]).sum(1), trust.alike, outliers)
    weights = likelihood * (grid.prior.T @ (share[:, None] / marginal))
    weights = (weights / weights.sum(0)).T
    return _binned(np.broadcast_to(grid.nodes, weights.shape), weights)


def variance_grid(
    variances: np.ndarray, explained: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return values of a variance, `d0` of each prior, and the priors, [priors, values]."""
    grid = _Grid.over(variances, explained)
    return grid.nodes, grid.alike, grid.prior


@dataclass(frozen=True)
class _Grid:
    """Values of a variance, and their prior for every `d0` and `s0`."""

    nodes: np.ndarray
    alike: np.ndarray  # `d0` of each point
    prior: np.ndarray  # [points, nodes]

    @classmethod
    def over(cls, variances: np.ndarray, explained: np.ndarray) -> _Grid:
        from scipy.special import chdtrc

        least = variances[variances > 0].min(initial=np.inf)
        top = max(variances.max(initial=0.0), explained.max())
        low = max(min(least, top), float(np.median(explained)), top / WIDEST) / 30
        # The upper tail decides about small p-values: it must be there, however thin.
        first, last = low / 1e3, top * 1e8
        edges = np.geomspace(first, last, round(PER_DECADE * np.log10(last / first)) + 1)
        middles = np.sqrt(edges[1:] * edges[:-1])
        scales = np.geomspace(low, top * 30, SCALES)
        alike, centre = (axis.ravel() for axis in np.meshgrid(ALIKE, scales, indexing="ij"))
        below = chdtrc(alike[:, None], (alike * centre)[:, None] / edges)
        prior = np.diff(below, axis=1, prepend=0.0, append=1.0)
        return cls(np.concatenate([[first / 2], middles, [last * 2]]), alike, prior)


def _shares(
    alike: np.ndarray, log_likelihood: np.ndarray, prior: tuple[float, ...], outliers: float
) -> np.ndarray:
    """Return the weight of each `d0` and `s0`."""

    def normalized(logs: np.ndarray) -> np.ndarray:
        weights = np.exp(logs - logs.max())
        return np.asarray(weights / weights.sum())

    learned = normalized(log_likelihood + np.repeat(np.log(prior), SCALES))
    apart = normalized(np.where(alike == ALIKE[0], log_likelihood, -np.inf))
    return (1 - outliers) * learned + outliers * apart


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
