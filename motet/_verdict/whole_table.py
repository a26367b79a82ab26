"""The mean gains of a whole table, tested together: one model of all methods.

A pair of methods has no luck of its own: each *method* has, and a pair has that of both. So the
variances are estimated method by method, from how the methods' scores move against each other over
seeds and over clients:

    score of a method with a seed = what the seed does to all of them + luck of the method's own

The variance of each method's own part is a draw from a scaled inverse chi-squared distribution, as
in `motet._verdict.spreads`, or, with some probability, that of an outlier, which has little to do
with the others. A Gibbs sampler draws variances that fit the scores, then errors of the methods'
means with these variances. The corrected p-value of a pair is the share of draws in which *any*
pair has an error as large as the observed gain, each measured by its own 99% point. Holm's
correction counts a noisy method once for each of its pairs; this counts it once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from motet._verdict.spreads import ALIKE, DOUBT, variance_grid

CHAINS, BURN, KEPT, PER_STATE = 24, 8, 16, 15  # of the sampler
BALANCED = 0.99  # the point of each pair's errors by which pairs are made comparable
MOST_NUMBERS = 2**23  # errors of pairs that are held at a time


@dataclass(frozen=True)
class Belief:
    """What is believed about the variances of methods before looking.

    Attributes:
        alike: How plausible each value of `ALIKE` is.
        outliers: Probability that a method is an outlier.
    """

    alike: tuple[float, ...]
    outliers: float


EXPECTED = Belief((0.5, 1.0, 2.0, 4.0, 6.0, 6.0, 6.0), outliers=0.2)
DOUBTFUL = Belief((1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0), outliers=0.5)


@dataclass(frozen=True)
class Errors:
    """Draws of the errors of all mean gains.

    Attributes:
        methods: Errors of the methods' means, [draws, methods].
        points: The 99% point of each pair's errors, [methods, methods].
        largest: The largest error of any pair in each draw, in units of these points; sorted.
    """

    methods: np.ndarray
    points: np.ndarray
    largest: np.ndarray

    @classmethod
    def of(cls, methods: np.ndarray) -> Errors:
        """Compare the errors of all pairs."""
        count = methods.shape[1]
        first, second = np.triu_indices(count, 1)
        drawn = methods[: max(MOST_NUMBERS // len(first), 1000)]
        apart = np.abs(drawn[:, first] - drawn[:, second])
        points = np.zeros((count, count))
        points[first, second] = np.quantile(apart, BALANCED, axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            units = np.nan_to_num(apart / points[first, second], nan=0.0)
        return cls(methods, points + points.T, np.sort(units.max(1)))

    def corrected(self, pair: tuple[int, int], gain: float) -> float:
        """Return the chance that any pair has an error as large as this gain."""
        point = self.points[pair]
        size = abs(gain) / point if point > 0 else (np.inf if gain else 0.0)
        return _share_from(self.largest, size)

    def reach(self, pair: tuple[int, int], risk: float) -> float:
        """Return the size that the pair's error exceeds with this risk, in either direction."""
        apart = np.abs(self.methods[:, pair[0]] - self.methods[:, pair[1]])
        return float(np.quantile(apart, 1 - risk))


def mean_errors(scores: np.ndarray, noise: float, belief: Belief) -> Errors:
    """Draw errors of the methods' means over clients and seeds.

    Args:
        scores: Scores [methods, clients, seeds], of which only differences between methods count;
            at least two of each.
        noise: Variance of a client's gain that its few test examples explain.
        belief: What is believed about variances.
    """
    rng = np.random.default_rng(0)
    methods, clients, seeds = scores.shape
    explained = np.full(methods, noise / 2)
    own = explained + _drawn(_contrasts(scores.mean(2)), explained, belief, rng)
    both = np.full(methods, _due_to_single_clients(scores))
    luck = _drawn(_contrasts(scores.mean(1)), both, belief, rng)
    rng.shuffle(luck)  # the two parts are independent
    variances = own / clients + luck / seeds
    return Errors.of(np.sqrt(variances) * rng.normal(size=variances.shape))


def scores_of(
    names: Sequence[tuple[str, str]], gains: Sequence[np.ndarray]
) -> dict[str, np.ndarray] | None:
    """Recover scores of methods, up to what they share, from gains of pairs.

    Args:
        names: Method and reference of each pair.
        gains: Gains [clients, seeds] of each pair.

    Returns:
        The scores by method, in the order of names; None if pairs have different clients or seeds,
        are not connected, or a gain is not finite.
    """
    same = len({values.shape for values in gains}) == 1 and all(
        values.size and np.isfinite(values).all() for values in gains
    )
    if not names or not same:
        return None
    found = {names[0][1]: np.zeros_like(gains[0])}
    for _ in names:
        for (label, reference), values in zip(names, gains, strict=True):
            if reference in found and label not in found:
                found[label] = found[reference] + values
            elif label in found and reference not in found:
                found[reference] = found[label] - values
    every = {name for pair in names for name in pair}
    return {name: found[name] for name in sorted(every)} if every == set(found) else None


def _share_from(ascending: np.ndarray, size: float) -> float:
    """Return the share of draws that are at least this large; never 0."""
    beyond = len(ascending) - int(np.searchsorted(ascending, size))
    return (beyond + 1) / (len(ascending) + 1)


def _contrasts(table: np.ndarray) -> np.ndarray:
    """Turn scores [methods, n] into n - 1 independent differences, [n - 1, methods]."""
    from scipy.linalg import helmert

    return np.asarray(helmert(table.shape[1]) @ table.T)


def _due_to_single_clients(scores: np.ndarray) -> float:
    """Return the variance of a method's mean with a seed that is due to single clients."""
    methods, clients, seeds = scores.shape
    rest = scores - scores.mean(0)
    rest = rest - rest.mean(1, keepdims=True)
    rest = rest - rest.mean(2, keepdims=True)
    freedom = (methods - 1) * (clients - 1) * (seeds - 1)
    return float((rest**2).sum() / (freedom + DOUBT) / clients)


def _drawn(
    moves: np.ndarray, explained: np.ndarray, belief: Belief, rng: np.random.Generator
) -> np.ndarray:
    """Draw the unexplained variance of each method, [draws, methods].

    Given what moves all methods alike, methods are independent of each other; given their
    variances, what moves all alike is normal. The sampler takes turns, in several chains at once.

    Args:
        moves: How each method moved, [differences, methods].
        explained: The part of each variance that is known.
        belief: What is believed about the rest.
        rng: Source of the draws.
    """
    sizes = ((moves - np.median(moves, axis=1, keepdims=True)) ** 2).mean(0)
    if not sizes.any() and not explained.any():
        return np.zeros((CHAINS * KEPT * PER_STATE, moves.shape[1]))
    nodes, alike, prior = variance_grid(sizes, explained)
    odd = np.tile(prior[alike == ALIKE[0]], (len(ALIKE), 1))
    prior = (1 - belief.outliers) * prior + belief.outliers * odd
    plausible = np.repeat(np.log(belief.alike), len(prior) // len(ALIKE))
    total = nodes + explained[:, None]
    around = 0.3 * np.sqrt(np.median(sizes)) * rng.normal(size=(CHAINS, len(moves)))
    common = np.median(moves, axis=1) + around
    kept = []
    for turn in range(BURN + KEPT):
        chances = _chances(moves, common, total, prior, plausible, rng)
        places = _places(chances, PER_STATE if turn >= BURN else 1, rng)
        if turn >= BURN:
            kept.append(nodes[places].reshape(-1, moves.shape[1]))
        variances = np.take_along_axis(total.T, places[0], 0)
        common = _common(moves, variances, rng)
    return np.concatenate(kept)


def _chances(
    moves: np.ndarray,
    common: np.ndarray,
    total: np.ndarray,
    prior: np.ndarray,
    plausible: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """Draw a prior for each chain, and return each method's posterior, [chains, methods, nodes]."""
    squares = ((moves - common[:, :, None]) ** 2).sum(1)
    logs = -len(moves) / 2 * np.log(total) - squares[:, :, None] / (2 * total)
    likelihood = np.exp(logs - logs.max(2, keepdims=True))
    marginal = np.log(np.maximum(likelihood @ prior.T, 1e-300)).sum(1) + plausible
    point = (marginal + rng.gumbel(size=marginal.shape)).argmax(1)
    weights = likelihood * prior[point][:, None, :]
    return np.asarray(weights / weights.sum(2, keepdims=True))


def _places(chances: np.ndarray, draws: int, rng: np.random.Generator) -> np.ndarray:
    """Draw nodes by their chances, [draws, chains, methods]."""
    below = chances.cumsum(2)
    even = rng.random((draws, *chances.shape[:2]))
    places = (below[None] < even[..., None]).sum(-1)
    return np.asarray(np.minimum(places, chances.shape[2] - 1))


def _common(moves: np.ndarray, variances: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw what moves all methods alike, given their variances [chains, methods]."""
    precision = (1 / variances).sum(1)[:, None]
    mean = (1 / variances) @ moves.T / precision
    return np.asarray(mean + rng.normal(size=mean.shape) / np.sqrt(precision))
