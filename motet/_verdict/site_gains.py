"""The gain of each site: its interval and test, from differences of shape [examples, seeds].

The question is whether a site gains on *other examples of its own* and with *other seeds*. The two
parts of the variance are those of `motet._verdict.chance`, with examples where clients were. The
part due to seeds is known from all sites and all pairs together (`motet._verdict.seed_luck`).
Nothing is borrowed about the gains themselves: a site is judged by its own examples.

Differences of accuracy are -1, 0 or 1, and often nearly all 0. Then Student's t is too sure, and
the p-value is the larger of his and of an exact sign-flip test over examples, which is McNemar's
if there is one seed.

Under other metrics a few examples may decide: an AUROC with three positives is known as well as
three examples make it, however many negatives there are. So the degrees of freedom of Student's t
are those of the examples that matter, and no p-value is below that of as many equal coins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from motet._verdict.chance import RISK, SURE, two_sided
from motet._verdict.multiplicity import benjamini_hochberg, holm
from motet._verdict.spreads import LEAST, Spread, estimated

State = Literal["helped", "harmed", "no difference", "cannot tell"]
HINT = 0.05  # share of sites with "probably" that may be no different
UNSEEN = 0.05  # share of examples that may change although none of a site's examples did
MOST_STEPS = 4000  # of the exact test: beyond, the central limit theorem makes it unnecessary


@dataclass(frozen=True, kw_only=True)
class SiteGain:
    """The gain of one site over its test examples and the seeds.

    Attributes:
        mean: The gain; positive is better for every metric.
        low: Lower end of the 95% interval; NaN with fewer than two examples.
        high: Upper end.
        p_value: Chance of a gain this large, in either direction, if there were none.
        p_cautious: The same, trusting less in what pairs of methods tell about each other.
        p_same: Chance of a gain this small, if it were as large as the margin.
        p_in_runs: As `p_value`, for these very runs: over other examples only.
        p_same_in_runs: As `p_same`, for these very runs.
        examples: Test examples of the site.
        seeds: Seeds.
    """

    mean: float
    low: float
    high: float
    p_value: float
    p_cautious: float
    p_same: float
    p_in_runs: float
    p_same_in_runs: float
    examples: int
    seeds: int


@dataclass(frozen=True)
class SiteState:
    """What can be said about a site, and whether it is sure (or only probable)."""

    state: State
    sure: bool = True


CANNOT_TELL = SiteState("cannot tell")


def site_gains(
    values: Sequence[np.ndarray], *, luck: tuple[Spread, Spread], margin: float, bounded: bool
) -> list[SiteGain]:
    """Test the gain of every site for one pair of methods.

    Args:
        values: Differences [examples, seeds] of each site, all with the same seeds.
        luck: Variance of each site's gain that is due to seeds: as it is usually known, and
            trusting less in what pairs of methods tell about each other.
        margin: Gains smaller than this do not matter.
        bounded: Whether differences are between -1 and 1, as those of accuracy are.
    """
    if not values:
        return []
    parts = [_parts(differences, bounded=bounded) for differences in values]
    means = np.array([part.mean for part in parts])
    seeds = values[0].shape[1]
    own = estimated(*np.array([(part.error, part.freedom) for part in parts]).T)
    total, cautious = (own.plus(part) if seeds > 1 else own for part in luck)
    lean = np.array([part.lean for part in parts])
    share = np.minimum(np.array([p.error for p in parts]) / np.maximum(total.mean(), 1e-300), 1.0)
    exact = np.array([sign_flips(v) if bounded else _coins(v) for v in values])
    below = np.array([_too_few_changes(part, margin, bounded=bounded) for part in parts])
    in_runs = np.maximum(two_sided(means, own, lean), exact)
    everywhere = np.maximum(two_sided(means, total, lean * share**1.5), exact)
    careful = np.maximum(two_sided(means, cautious, lean * share**1.5), everywhere)
    same_in_runs = np.maximum(_within(means, own, margin), below)
    same = np.maximum(_within(means, cautious, margin), below)
    reach = total.reach(RISK / 2)
    gains = []
    for i, part in enumerate(parts):
        tested = part.examples > 1 and math.isfinite(part.mean)
        gains.append(
            SiteGain(
                mean=part.mean,
                low=part.mean - float(reach[i]) if tested else math.nan,
                high=part.mean + float(reach[i]) if tested else math.nan,
                p_value=float(everywhere[i]) if tested and seeds > 1 else 1.0,
                p_cautious=float(careful[i]) if tested and seeds > 1 else 1.0,
                p_same=float(same[i]) if tested and seeds > 1 else 1.0,
                p_in_runs=float(in_runs[i]) if tested else 1.0,
                p_same_in_runs=float(same_in_runs[i]) if tested else 1.0,
                examples=part.examples,
                seeds=seeds,
            )
        )
    return gains


def site_states(gains: Sequence[SiteGain], *, in_runs: bool = False) -> list[SiteState]:
    """Judge the sites of one pair of methods, corrected for their number.

    A claim is sure if Holm's correction supports it: then one table in a hundred has a false claim
    about any site. It is probable if Benjamini and Hochberg's does.

    Args:
        gains: The sites' gains.
        in_runs: Judge these very runs, without a claim about other seeds.
    """
    p_values = [gain.p_in_runs if in_runs else gain.p_value for gain in gains]
    cautious = [gain.p_in_runs if in_runs else gain.p_cautious for gain in gains]
    same = [gain.p_same_in_runs if in_runs else gain.p_same for gain in gains]
    sure, probable, alike = holm(cautious), benjamini_hochberg(p_values), holm(same)
    states = []
    for gain, p, hint, p_same in zip(gains, sure, probable, alike, strict=True):
        if p < SURE or (hint < HINT and p_same >= SURE):
            states.append(SiteState("helped" if gain.mean > 0 else "harmed", p < SURE))
        elif p_same < SURE:
            states.append(SiteState("no difference"))
        else:
            states.append(CANNOT_TELL)
    return states


def sign_flips(values: np.ndarray) -> float:
    """Test whole differences [examples, seeds] by flipping the sign of each example, exactly.

    With one seed and differences of -1, 0 and 1 this is McNemar's exact test. Differences that are
    not whole numbers are not tested: the result is 0.

    >>> round(sign_flips(np.array([[1], [1], [1], [0], [1], [1]])), 9)  # 2 of 32 outcomes
    0.0625
    """
    from scipy.special import gammaln

    sums = values.sum(1)
    whole = np.rint(sums)
    if not np.allclose(sums, whole, atol=1e-9):
        return 0.0
    sizes = np.abs(whole).astype(int)
    steps, observed = int(sizes.sum()), abs(int(whole.sum()))
    if steps > MOST_STEPS:
        return 0.0
    chances = np.ones(1)  # of each sum from -steps to steps
    for size in np.unique(sizes[sizes > 0]):
        count = int((sizes == size).sum())
        signs = np.zeros(2 * size * count + 1)
        ups = np.arange(count + 1.0)
        ways = gammaln(count + 1.0) - gammaln(ups + 1) - gammaln(count - ups + 1)
        signs[:: 2 * size] = np.exp(ways - count * np.log(2.0))  # 2.0**1024 would overflow
        chances = np.convolve(chances, signs)
    away = np.abs(np.arange(len(chances)) - steps)
    return float(min(1.0, chances[away >= observed].sum()))


# -- parts --------------------------------------------------------------------


@dataclass(frozen=True)
class _Parts:
    """A site's gain and its variance."""

    mean: float
    error: float  # variance of the mean that is due to examples
    lean: float  # skewness of the mean
    freedom: float  # degrees of freedom of `error`
    examples: int


def _parts(values: np.ndarray, *, bounded: bool) -> _Parts:
    examples = len(values)
    if not examples or not np.isfinite(values).all():
        return _Parts(math.nan, 0.0, 0.0, 1.0, 0)
    of_examples = values.mean(1)
    mean = float(of_examples.mean())
    centred = of_examples - mean
    variance = float((centred**2).sum()) / max(examples - 1, 1)
    if bounded:  # one more example that changes, half of them each way (Agresti and Min, 2005)
        variance = max(variance, (float((of_examples**2).sum()) + 1) / (examples + 2) - mean**2)
    scale = float((centred**2).mean()) ** 1.5
    skewness = float((centred**3).mean()) / scale if scale > 0 else 0.0
    freedom = float(max(examples - 1, 1)) if bounded else _freedom(centred)
    lean = skewness / math.sqrt(examples)
    return _Parts(mean, variance / examples, lean, freedom, examples)


def _freedom(centred: np.ndarray) -> float:
    """Return the degrees of freedom of a variance that few of the examples may decide.

    With examples of equal weight their number less one, at most. Of normal ones, half of it.
    """
    fourth = float((centred**4).sum())
    if not fourth:
        return float(max(len(centred) - 1, 1))
    deciding = float((centred**2).sum()) ** 2 / fourth
    return min(max(1.5 * deciding - 1, LEAST), float(max(len(centred) - 1, 1)))


def _coins(values: np.ndarray) -> float:
    """Return the chance that coins in place of the examples that differ would all fall alike."""
    return 0.5 ** (max(int(np.count_nonzero(values.mean(1))), 1) - 1)


def _within(means: np.ndarray, spread: Spread, margin: float) -> np.ndarray:
    """Return the larger p-value of two tests: below the margin, and above its negative."""
    room = margin - np.abs(means)
    return np.where(room > 0, spread.above(np.maximum(room, 0.0)), 1.0)


def _too_few_changes(part: _Parts, margin: float, *, bounded: bool) -> float:
    """Return the chance of so few changed examples, if a share as large as the margin changed."""
    from scipy.special import bdtr

    if not part.examples:
        return 1.0
    if not bounded:  # the variance speaks, if there is one
        return 0.0 if part.error else float((1 - UNSEEN) ** part.examples)
    if margin >= 1:
        return 0.0
    return float(bdtr(round(part.examples * abs(part.mean)), part.examples, margin))
