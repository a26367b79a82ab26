"""Is a mean gain more than chance? Intervals and tests on gains [clients, seeds].

The unit is the client: what is asked is whether the mean gain would still be above 0 had the
federation been made of other clients of the same kind. Seeds are repetitions, and each of them
brings all clients the same luck: ten thousand clients cannot tell a better method from a lucky
seed, only other seeds can. So the variance of the mean gain has two parts, as in psychology where
subjects and words are both drawn (Clark's min F', 1973):

    V = V_clients + V_seeds = var(gains averaged over seeds) / clients
                            + var(gains averaged over clients) / seeds

How far Student's t can be trusted follows from where the variance comes from: its tail is that of
`clients - 1` and of `seeds - 1` degrees of freedom, in proportion to the two parts. Two or three
seeds that disagree about the sign can never support a difference. docs/decisions/0011 has the
measurements behind this.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from motet.keys import Key

LEVEL = 0.05  # the risk of calling chance a difference, over a whole table
FLIPS = 9999  # all sign flips are tried up to 13 clients, and so many of them beyond
REDRAWS = 1999
MANY = 200  # clients, from which on the central limit theorem does what flipping signs would
BATCH = 500  # keeps the memory of 10,000 clients below 50 MB


class Variance(NamedTuple):
    """Of the mean gain, in two parts: other clients might have come, or other seeds."""

    clients: float
    seeds: float
    shape: tuple[int, int]  # clients, seeds

    @property
    def total(self) -> float:
        """The squared standard error of the mean gain."""
        return self.clients + self.seeds

    def tail(self, t: float) -> float:
        """Return the probability of a |t| this large: Student's, by where the variance is from."""
        from scipy.special import stdtr

        clients, seeds = self.shape
        part = self.seeds / self.total
        from_seeds = part * stdtr(seeds - 1, -t) if part else 0.0
        return float(2 * ((1 - part) * stdtr(clients - 1, -t) + from_seeds))

    def reach(self) -> float:
        """Return how far the mean gain may be from the truth, with 95% confidence."""
        from scipy import optimize

        if self.total == 0:
            return 0.0
        # One degree of freedom reaches 12.7 standard errors, and none has a heavier tail.
        t = optimize.brentq(lambda t: self.tail(t) - LEVEL, 0.0, 13.0)
        return float(t) * math.sqrt(self.total)


def over_seeds(values: np.ndarray) -> np.ndarray:
    """Average each client's gains [clients, seeds]; what cancels is 0, without rounding errors."""
    means: np.ndarray = values.mean(1)
    means[np.abs(means) < 1e-9 * np.abs(values).max(initial=0.0)] = 0.0
    return means


def interval(values: np.ndarray) -> tuple[float, float]:
    """Find the 95% interval of the mean gain; NaN for a single client.

    How long it is says `Variance`: a bootstrap of five clients, or of any number of them with three
    seeds, would be too short. How it lies around the mean says a bootstrap over clients, as far as
    the variance is theirs: gains are rarely symmetric.
    """
    if len(values) < 2:
        return math.nan, math.nan
    mean, found = float(values.mean()), variance(values)
    low, high = redraw_clients(values)
    lean = (mean - low) / (high - low) - 0.5 if high > low else 0.0
    below = 0.5 + lean * (found.clients / found.total if found.total else 0.0)
    length = 2 * found.reach()
    return mean - below * length, mean + (1 - below) * length


def redraw_clients(values: np.ndarray) -> tuple[float, float]:
    """Find the 95% interval of the mean gain over clients redrawn with replacement."""
    from scipy import stats

    redrawn = stats.bootstrap(
        (over_seeds(values),),
        np.mean,
        n_resamples=REDRAWS,
        batch=BATCH,
        method="percentile",
        rng=Key(0).fold("clients redrawn").numpy(),
    )
    return float(redrawn.confidence_interval.low), float(redrawn.confidence_interval.high)


def p_value(values: np.ndarray) -> float:
    """Test whether the mean gain is 0; two-sided, and the more careful one of two tests.

    Flipping the signs of whole clients needs no assumption about how gains are distributed, and
    knows that few clients prove little. Student's t knows how much seeds differ.
    """
    if len(values) < 2:
        return 1.0
    flipped = sign_flips(over_seeds(values)) if len(values) <= MANY else 0.0
    return max(flipped, student(values))


def sign_flips(of_clients: np.ndarray) -> float:
    """Return how often random signs give a mean gain this large; exact up to 13 clients."""
    from scipy import stats

    tried = stats.permutation_test(
        (of_clients,),
        np.mean,
        permutation_type="samples",
        n_resamples=FLIPS,
        batch=BATCH,
        rng=Key(0).fold("signs flipped").numpy(),
    )
    return float(tried.pvalue)


def student(values: np.ndarray) -> float:
    """Test the mean gain against its standard error over clients and seeds."""
    found, mean = variance(values), abs(float(values.mean()))
    if found.total == 0:
        return 1.0 if mean == 0 else 0.0
    return found.tail(mean / math.sqrt(found.total))


def variance(values: np.ndarray) -> Variance:
    """Estimate the variance of the mean gain; one seed tells nothing about other seeds."""
    clients, seeds = values.shape
    return Variance(
        clients=float(values.mean(1).var(ddof=1)) / clients,
        seeds=float(values.mean(0).var(ddof=1)) / seeds if seeds > 1 else 0.0,
        shape=(clients, seeds),
    )


def smallest_p(clients: int) -> float:
    """Return what the test says at best, when every single client gains: 2 of all sign flips.

    >>> smallest_p(5)  # five hospitals that all agree are no proof at the level of 0.05
    0.0625
    """
    return 2.0 ** (1 - clients)


def corrected(p_values: Sequence[float]) -> list[float]:
    """Correct for having made several comparisons (Holm, 1979), in the order given.

    If all methods are equal, the chance that any corrected value is below 0.05 is at most 5%.

    >>> corrected([0.01, 0.5, 0.02])
    [0.03, 0.5, 0.04]
    """
    plain = np.asarray(p_values, dtype=float)
    order = plain.argsort(kind="stable")
    scaled = plain[order] * np.arange(len(plain), 0, -1)
    adjusted = np.empty_like(plain)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(scaled))
    return [float(value) for value in adjusted]
