"""Judgements of pairs of methods from arrays: the mean over clients, and every site on its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from motet._verdict.chance import PROBABLE, RISK, SURE, MeanGain, at_least, mean_gains
from motet._verdict.multiplicity import holm
from motet._verdict.seed_luck import seed_luck
from motet._verdict.site_gains import SiteGain, SiteState, site_gains, site_states
from motet._verdict.site_groups import over_groups
from motet._verdict.spreads import CAUTIOUS, USUAL, Spread
from motet._verdict.whole_table import DOUBTFUL, EXPECTED, mean_errors, scores_of


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two methods, client by client: how much better the first one is.

    Attributes:
        gains: Gain of each client with each seed, [clients, seeds].
        examples: For each client, gains by example, [examples, seeds]; None if they are not known.
        counts: Test examples of each client.
        groups: The group of each client, if some of them are not independent of each other.
        names: Both methods; () if the pair is tested on its own, over some of the clients, say.
    """

    gains: np.ndarray
    examples: Sequence[np.ndarray] | None = None
    counts: Sequence[int] = ()
    groups: Sequence[str] = ()
    names: tuple[str, str] | tuple[()] = ()

    @property
    def units(self) -> np.ndarray:
        """Gains of what is independent of each other, [clients or groups of clients, seeds]."""
        return over_groups(self.gains, self.groups) if len(self.groups) else self.gains


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What is known about a pair.

    Attributes:
        mean: The mean gain over clients.
        corrected: Its p-value, corrected for all pairs of the table.
        cautious: The same, trusting less in what pairs tell about each other.
        corrected_in_runs: The same for these very runs.
        sites: Each client's gain; empty without examples.
        states: What can be said about each client, over other seeds.
        states_in_runs: What these runs show about each client.
    """

    mean: MeanGain
    corrected: float
    cautious: float
    corrected_in_runs: float
    sites: tuple[SiteGain, ...]
    states: tuple[SiteState, ...]
    states_in_runs: tuple[SiteState, ...]

    @property
    def sure(self) -> bool:
        """Whether the mean gain is not 0, with other clients and other seeds."""
        return self.cautious < SURE

    @property
    def probable(self) -> bool:
        """Whether that is probable, but not sure."""
        return not self.sure and self.corrected < PROBABLE

    @property
    def in_runs(self) -> bool:
        """Whether these runs differ by more than the choice of clients explains."""
        return self.corrected_in_runs < SURE


def judged(
    pairs: Sequence[Pair],
    *,
    methods: int,
    margin: float | Sequence[float],
    bounded: bool,
    extra: int = 0,
    with_sites: Sequence[bool] | None = None,
) -> list[Judgement]:
    """Judge several pairs together.

    Args:
        pairs: The pairs that are shown.
        methods: Number of methods; the leader is found by looking at all of them, so all their
            pairs count for the correction.
        margin: Gains of a site smaller than this do not matter; one number, or one per pair.
        bounded: Whether scores of examples are between 0 and 1.
        extra: Pairs among these that are tested over some of the clients only.
        with_sites: Pairs whose sites are judged; default: all that have examples.
    """
    noise = [_noise(pair, bounded=bounded) for pair in pairs]
    means = mean_gains([pair.units for pair in pairs], methods=methods, noise=noise)
    family = comparisons(methods) + extra
    margins = list(np.broadcast_to(margin, len(pairs)))
    corrected = holm([mean.p_value for mean in means], family)
    cautious = holm([mean.p_cautious for mean in means], family)
    means, corrected, cautious = _together(pairs, noise, means, corrected, cautious)
    cautious = [max(p, unanimous(len(pair.units))) for p, pair in zip(cautious, pairs, strict=True)]
    in_runs = holm([mean.p_in_runs for mean in means], family)
    wanted = [True] * len(pairs) if with_sites is None else with_sites
    lucks = _lucks(pairs, wanted, methods)
    found = []
    for i, (pair, mean) in enumerate(zip(pairs, means, strict=True)):
        sites: list[SiteGain] = []
        if i in lucks and pair.examples is not None:
            sites = site_gains(
                pair.examples, luck=lucks[i], margin=float(margins[i]), bounded=bounded
            )
        found.append(
            Judgement(
                mean=mean,
                corrected=corrected[i],
                cautious=cautious[i],
                corrected_in_runs=in_runs[i],
                sites=tuple(sites),
                states=tuple(site_states(sites)),
                states_in_runs=tuple(site_states(sites, in_runs=True)),
            )
        )
    return found


def _lucks(
    pairs: Sequence[Pair], wanted: Sequence[bool], methods: int
) -> dict[int, tuple[Spread, Spread]]:
    """Return the luck of seeds in each site's gain, for the pairs whose sites are judged."""
    tested = {
        i: pair.examples
        for i, (pair, want) in enumerate(zip(pairs, wanted, strict=True))
        if want and pair.examples
    }
    if not tested:
        return {}
    usual, cautious = (
        seed_luck(list(tested.values()), methods=methods, trust=trust)
        for trust in (USUAL, CAUTIOUS)
    )
    return dict(zip(tested, zip(usual, cautious, strict=True), strict=True))


def _together(
    pairs: Sequence[Pair],
    noise: Sequence[float],
    means: Sequence[MeanGain],
    corrected: Sequence[float],
    cautious: Sequence[float],
) -> tuple[list[MeanGain], list[float], list[float]]:
    """Replace tests of single pairs by a test of the table, where all pairs have the same clients.

    Returns:
        The mean gains and both corrected p-values. What cannot be tested together stays.
    """
    means, corrected, cautious = list(means), list(corrected), list(cautious)
    named = [(i, pair.names) for i, pair in enumerate(pairs) if len(pair.names) == 2]
    scores = scores_of([names for _, names in named], [pairs[i].units for i, _ in named])
    # A pair must look real on its own: methods may move together, or against each other, which the
    # model of the table does not know. So there is nothing to find if no pair does.
    hopeful = any(means[i].p_value < PROBABLE for i, _ in named)
    if scores is None or not hopeful or min(pairs[named[0][0]].units.shape) < 2:
        return means, corrected, cautious
    place = {name: number for number, name in enumerate(scores)}
    explained = float(np.mean([noise[i] for i, _ in named]))
    table = np.stack(list(scores.values()))
    errors = mean_errors(table, explained, EXPECTED)
    asked = [((place[a], place[b]), means[i].mean * means[i].shrunk) for i, (a, b) in named]
    found = [errors.corrected(*one) for one in asked]
    strict = mean_errors(table, explained, DOUBTFUL) if min(found) < SURE else errors
    for (i, _), (pair, gain), p in zip(named, asked, found, strict=True):
        usual = max(p, means[i].p_value)
        doubted = max(usual, strict.corrected(pair, gain))
        if cautious[i] > doubted:
            means[i] = at_least(means[i], errors.reach(pair, RISK))
        # What the strictest test of single pairs sees needs nothing else.
        corrected[i], cautious[i] = min(usual, cautious[i]), min(doubted, cautious[i])
    return means, corrected, cautious


def unanimous(clients: int) -> float:
    """Return the chance that coins in place of clients would all fall on the same side.

    Four clients may belong to one group by chance, and those who do not take part to another. No
    claim about *other* clients can be surer than this without assuming how clients differ.

    >>> unanimous(4), unanimous(8)
    (0.125, 0.0078125)
    """
    return 0.5 ** max(clients - 1, 0)


def comparisons(methods: int) -> int:
    """Return the number of pairs of methods.

    >>> comparisons(5)
    10
    """
    return methods * (methods - 1) // 2


def _noise(pair: Pair, *, bounded: bool) -> float:
    """Return the mean variance of a client's (or group's) gain that test examples explain."""
    # A group of n clients counts n times as much as one, with an error of the n-th part.
    return _noise_of_clients(pair, bounded=bounded) * len(pair.units) / max(len(pair.gains), 1)


def _noise_of_clients(pair: Pair, *, bounded: bool) -> float:
    if pair.examples is not None:
        errors = [
            float(values.mean(1).var(ddof=1)) / len(values)
            for values in pair.examples
            if len(values) > 1 and np.isfinite(values).all()
        ]
        return float(np.mean(errors)) if errors else 0.0
    if not bounded or not len(pair.counts) or not pair.gains.size:
        return 0.0
    counts = np.maximum(np.asarray(pair.counts, dtype=float), 1)
    changed = pair.gains * counts[:, None]
    if not np.allclose(changed, np.rint(changed), atol=1e-6):
        return 0.0  # not a count of examples
    # Differences of -1, 0 and 1 with this mean vary at least this much.
    share = min(abs(float(pair.gains.mean())), 1.0)
    return share * (1 - share) * float(np.mean(1 / counts))
