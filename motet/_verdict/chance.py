"""The mean gain over clients: its interval and test, from gains of shape [clients, seeds].

The question is whether the mean gain would still be above 0 with *other clients of the same kind*
and with *other seeds*. A lucky seed is lucky for all clients at once: ten thousand clients cannot
distinguish a better method from a lucky seed. So the variance of the mean gain has two parts:

    V = clients + seeds = var(gains averaged over seeds) / clients
                        + var(gains averaged over clients) / seeds - what is counted in both

Two or three seeds hardly tell their part. All pairs of methods of a comparison are therefore
looked at together, and each pair borrows from the others (`motet._verdict.spreads`): a second seed
then adds evidence instead of removing it. What these runs show, whatever other seeds may do, is
kept beside it. docs/decisions/0033 has the reasons and the measurements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from motet._verdict.spreads import CAUTIOUS, DOUBT, USUAL, Spread, Trust, pooled

SURE = 0.01  # the risk that a whole table contains a false claim
PROBABLE = 0.03  # the same for claims with "probably"
RISK = 0.05  # of an interval, both sides together
LONGEST = 2.0  # how much longer the longer side of an interval may get
ENOUGH = 20  # clients: of as many, half of the skewness they show is believed
FEW_TESTS = 5  # with fewer, outliers are not reckoned to be more frequent


@dataclass(frozen=True, kw_only=True)
class MeanGain:
    """A mean gain over clients and seeds.

    Attributes:
        mean: The mean.
        low: Lower end of the 95% interval; NaN with a single client.
        high: Upper end.
        p_value: Chance of a mean this large, in either direction, if clients gained nothing on
            average; over other clients and other seeds. 1.0 with one seed or one client.
        p_cautious: The same, trusting less in what pairs of methods tell about each other.
        p_in_runs: The same for these very runs: over other clients only.
        shrunk: Factor of the mean that makes a test as careful as skewed gains ask for.
    """

    mean: float
    low: float
    high: float
    p_value: float
    p_cautious: float
    p_in_runs: float
    shrunk: float = 1.0


UNKNOWN = MeanGain(
    mean=math.nan,
    low=math.nan,
    high=math.nan,
    p_value=1.0,
    p_cautious=1.0,
    p_in_runs=1.0,
)


@dataclass(frozen=True)
class Parts:
    """The parts of the variance of a mean gain, estimated from gains [clients, seeds]."""

    clients: float  # variance of a client's gain, averaged over seeds
    noise: float  # the part of `clients` that the clients' test examples explain
    seeds: float  # variance of a seed's gain, averaged over clients
    both: float  # the part of `seeds` that is due to single clients
    skewness: float  # of the clients' gains
    shape: tuple[int, int]

    @classmethod
    def of(cls, values: np.ndarray, noise: float = 0.0) -> Parts:
        """Estimate the parts.

        Args:
            values: Gains [clients, seeds].
            noise: Variance of a client's gain that its few test examples explain.
        """
        clients, seeds = values.shape
        of_clients, of_seeds = over_seeds(values), values.mean(0)
        rest = values - of_clients[:, None] - of_seeds + values.mean()
        both = (rest**2).sum() / max((clients - 1) * (seeds - 1), 1) / clients
        variance = float(of_clients.var(ddof=1)) if clients > 1 else 0.0
        return cls(
            clients=variance,
            noise=noise,
            seeds=float(of_seeds.var(ddof=1)) if seeds > 1 else 0.0,
            both=float(both) if seeds > 1 else 0.0,
            skewness=_skewness(of_clients),
            shape=(clients, seeds),
        )


def mean_gains(
    pairs: Sequence[np.ndarray], *, methods: int, noise: Sequence[float] | None = None
) -> list[MeanGain]:
    """Test the mean gains of several pairs of methods together.

    Args:
        pairs: Gains [clients, seeds] of each pair.
        methods: Number of methods among these pairs.
        noise: For each pair, the variance of a client's gain that its test examples explain.
    """
    noise = [0.0] * len(pairs) if noise is None else noise
    usable = [values.size > 0 and bool(np.isfinite(values).all()) for values in pairs]
    parts = [
        Parts.of(values, floor)
        for values, floor, use in zip(pairs, noise, usable, strict=True)
        if use
    ]
    if not parts:
        return [UNKNOWN for _ in pairs]
    means = np.array([float(v.mean()) for v, use in zip(pairs, usable, strict=True) if use])
    tested = iter(_tested(means, parts, methods))
    return [next(tested) if use else UNKNOWN for use in usable]


@dataclass(frozen=True)
class _Spreads:
    """The variance of each pair's mean gain, and its parts."""

    clients: Spread
    total: Spread
    lean: np.ndarray  # skewness of the mean over clients
    total_lean: np.ndarray  # and of the mean over clients and seeds


def _spreads(parts: Sequence[Parts], methods: int, trust: Trust) -> _Spreads:
    independent = max(methods - 1, 1)
    clients = np.array([max(part.shape[0], 2) for part in parts])
    noise = np.array([part.noise for part in parts])
    variances = np.array([part.clients for part in parts])
    own = _own(variances, noise, clients - 1.0, independent, trust).scaled(1 / clients)
    total = own.plus(_luck(parts, methods, trust))
    # The skewness of clients matters as far as the variance is due to clients. What few clients
    # show of it is mostly chance.
    largest = np.maximum(variances, noise)
    share = np.minimum(largest / clients / np.maximum(total.mean(), 1e-300), 1.0)
    skewness = np.array([part.skewness for part in parts]) * clients / (clients + ENOUGH)
    lean = skewness / np.sqrt(clients)
    return _Spreads(own, total, lean, lean * share**1.5)


def _own(
    variances: np.ndarray, noise: np.ndarray, freedom: np.ndarray, independent: int, trust: Trust
) -> Spread:
    """Return how much clients differ, which is at least what their test examples explain."""
    if trust.explained:
        rest = pooled(variances, freedom, independent=independent, trust=trust, explained=noise)
        return rest.beyond(noise)
    # Four clients may be alike by chance: then only their number says how little that means.
    return pooled(np.maximum(variances, noise), freedom, independent=independent, trust=trust)


def _luck(parts: Sequence[Parts], methods: int, trust: Trust) -> Spread:
    """Return the variance of each mean gain that is due to luck of seeds that clients share.

    Two or three seeds do not show an outlier, so that one must be reckoned with.
    """
    clients, seeds = np.array([part.shape for part in parts]).T
    freedom = (clients - 1.0) * (seeds - 1.0)
    both = np.array([part.both for part in parts]) * freedom / (freedom + DOUBT)
    variances = np.array([part.seeds for part in parts])
    luck = pooled(
        variances,
        seeds - 1.0,
        independent=max(methods - 1, 1),
        trust=trust,
        tests=max(methods * (methods - 1) / 2, FEW_TESTS),
        explained=both,
    ).scaled(1 / seeds)
    # With one seed nothing is known about luck, and nothing is claimed beyond the run.
    return Spread(np.where(seeds[:, None] > 1, luck.values, 0.0), luck.weights)


def _tested(means: np.ndarray, parts: Sequence[Parts], methods: int) -> list[MeanGain]:
    usual, cautious = (_spreads(parts, methods, trust) for trust in (USUAL, CAUTIOUS))
    p_values = two_sided(means, usual.total, usual.total_lean)
    p_cautious = np.maximum(p_values, two_sided(means, cautious.total, cautious.total_lean))
    p_in_runs = two_sided(means, cautious.clients, cautious.lean)
    shrunk = _shrunk(means, cautious.total, cautious.total_lean)
    below, above = _leaning_reach(usual.total.reach(RISK / 2), usual.total, usual.total_lean)
    gains = []
    for row, part in enumerate(parts):
        clients, seeds = part.shape
        tested = min(clients, seeds) > 1
        gains.append(
            MeanGain(
                mean=float(means[row]),
                low=float(means[row] - below[row]) if clients > 1 else math.nan,
                high=float(means[row] + above[row]) if clients > 1 else math.nan,
                p_value=float(p_values[row]) if tested else 1.0,
                p_cautious=float(p_cautious[row]) if tested else 1.0,
                p_in_runs=float(p_in_runs[row]) if clients > 1 else 1.0,
                shrunk=float(shrunk[row]),
            )
        )
    return gains


def at_least(found: MeanGain, reach: float) -> MeanGain:
    """Return a mean gain whose interval reaches at least this far to both sides."""
    return replace(
        found,
        low=min(found.low, found.mean - reach),
        high=max(found.high, found.mean + reach),
    )


def two_sided(means: np.ndarray, spread: Spread, lean: np.ndarray | float = 0.0) -> np.ndarray:
    """Return the chance of an error as large as these means, in either direction.

    Args:
        means: The means.
        spread: What is known of their variances.
        lean: Skewness of each mean: where gains are skewed, a loss (or a gain) of this size is
            more likely than Student says (Hall, 1992). It only ever makes more careful.
    """
    shrunk = _shrunk(means, spread, np.asarray(lean))
    return np.asarray(np.minimum(1.0, 2 * spread.above(np.abs(means) * shrunk)))


def _shrunk(means: np.ndarray, spread: Spread, lean: np.ndarray) -> np.ndarray:
    """Return the factor by which skewness makes each mean count less."""
    error = np.sqrt(spread.mean())
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(error > 0, means / np.where(error > 0, error, 1.0), 0.0)
    bent = np.abs(_hall(t, lean))
    return np.where(np.abs(t) > 0, np.minimum(bent / np.maximum(np.abs(t), 1e-300), 1.0), 1.0)


def _hall(t: np.ndarray, lean: np.ndarray) -> np.ndarray:
    """Undo the skewness of a t statistic, monotonically."""
    return np.asarray(t + lean * t**2 / 3 + lean**2 * t**3 / 27 + lean / 6)


def _leaning_reach(
    reach: np.ndarray, spread: Spread, lean: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Make an interval longer on the side with the longer tail; returns both reaches."""
    error = np.sqrt(spread.mean())
    r = np.divide(reach, error, out=np.zeros_like(reach), where=error > 0)
    safe = np.where(np.abs(lean) > 1e-9, lean, 1.0)

    def undone(y: np.ndarray) -> np.ndarray:
        bent = 3 / safe * (np.cbrt(1 + safe * (y - safe / 6)) - 1)
        return np.where(np.abs(lean) > 1e-9, bent, y)

    below, above = undone(r) * error, -undone(-r) * error
    # The expansion holds for moderate skewness only.
    return np.clip(below, reach, LONGEST * reach), np.clip(above, reach, LONGEST * reach)


def over_seeds(values: np.ndarray) -> np.ndarray:
    """Average each client's gains [clients, seeds]; rounding errors around 0 become exactly 0."""
    means: np.ndarray = values.mean(1)
    means[np.abs(means) < 1e-9 * np.abs(values).max(initial=0.0)] = 0.0
    return means


def _skewness(values: np.ndarray) -> float:
    centred = values - values.mean()
    scale = float((centred**2).mean()) ** 1.5
    return float((centred**3).mean()) / scale if len(values) > 2 and scale > 0 else 0.0
