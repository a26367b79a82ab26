"""Luck of seeds in the gain of a single site: what all sites share, and the site's own.

A lucky seed lifts all sites at once, and is seen in how the sites move together. Sites with few
test examples move a lot by themselves: each counts by how precisely it shows the common movement,
and what single examples and single sites explain is not luck.

Shared luck is never a matter of one site: if it is underestimated, every site of the method is
wrong, under every reference. Rules that allow a share of false claims among sites, such as
Benjamini and Hochberg's, do not average over it. So it counts as the largest of all methods' luck.

What a seed does to one site alone is estimated from all sites of all pairs together: two seeds say
nearly nothing about one site, and there are many of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from motet._verdict.chance import FEW_TESTS
from motet._verdict.spreads import DOUBT, USUAL, Spread, Trust, pooled

RISK = 0.01  # that the luck of any method is larger than it counts


def due_to_examples(sites: Sequence[np.ndarray]) -> np.ndarray:
    """Return the variance of each site's mean gain with a seed that single examples explain.

    A site with three examples hardly knows it. The variance of a single example is much the same
    everywhere, so small sites borrow it.

    Args:
        sites: Differences [examples, seeds] of each site.
    """
    found = [_interaction(values) for values in sites]
    variances, freedom = np.array(found, dtype=float).reshape(-1, 2).T
    average = float(freedom @ variances) / max(float(freedom.sum()), 1.0)
    moderated = (freedom * variances + DOUBT * average) / (freedom + DOUBT)
    return np.asarray(moderated / [max(len(values), 1) for values in sites])


def _interaction(values: np.ndarray) -> tuple[float, int]:
    """Return how much examples differ from seed to seed, each by itself, and how well known."""
    examples, seeds = values.shape
    freedom = (examples - 1) * (seeds - 1)
    if freedom < 1 or not np.isfinite(values).all():
        return 0.0, 0
    rest = values - values.mean(1, keepdims=True) - values.mean(0) + values.mean()
    return float((rest**2).sum()) / freedom, freedom


def seed_luck(
    pairs: Sequence[Sequence[np.ndarray]], *, methods: int, trust: Trust = USUAL
) -> list[Spread]:
    """Return, for each pair, the variance of each site's gain that is due to seeds.

    Args:
        pairs: For each pair of methods, differences [examples, seeds] of each site.
        methods: Number of methods among these pairs.
        trust: How far pairs may borrow from each other what they know of luck that sites share.
    """
    shared, alone = shared_luck(pairs, methods, trust), own_luck(pairs, methods)
    ends = np.cumsum([0, *(len(sites) for sites in pairs)])
    found = []
    for i, sites in enumerate(pairs):
        common = shared.taken(np.array([i]))
        rows = alone.taken(np.arange(ends[i], ends[i + 1]))
        # Of a single site all luck is shared.
        found.append(rows.scaled(1 / sites[0].shape[1]).plus(common) if len(sites) > 1 else common)
    return found


def own_luck(pairs: Sequence[Sequence[np.ndarray]], methods: int) -> Spread:
    """Return the variance of a site's gain with a seed that it does not share with the others."""
    variances: list[float] = []
    freedom: list[float] = []
    explained: list[float] = []
    for sites in pairs:
        seeds = sites[0].shape[1]
        table = np.nan_to_num([v.mean(0) if len(v) else np.zeros(seeds) for v in sites])
        rest = table - table.mean(0) - table.mean(1, keepdims=True) + table.mean()
        used = max(seeds - 1, 1) * max(len(sites) - 1, 1) / len(sites)
        variances.extend((rest**2).sum(1) / used)
        freedom.extend([seeds - 1.0 if len(sites) > 1 else 0.0] * len(sites))
        explained.extend(due_to_examples(sites))  # counted with the examples
    most = max(len(sites) for sites in pairs)
    independent = max(methods - 1, 1) * max(most - 1, 1)
    return pooled(
        np.array(variances),
        np.array(freedom),
        independent=independent,
        explained=np.array(explained),
    )


def shared_luck(pairs: Sequence[Sequence[np.ndarray]], methods: int, trust: Trust) -> Spread:
    """Return the variance of each pair's gain that is due to luck which all sites share."""
    variances, explained, seeds = np.array([_moves(sites) for sites in pairs]).T
    luck = pooled(
        variances,
        seeds - 1,
        independent=max(methods - 1, 1),
        trust=trust,
        tests=max(methods * (methods - 1) / 2, FEW_TESTS),
        explained=explained,
    ).scaled(1 / seeds)
    # With one seed nothing is known about luck, and nothing is claimed beyond the run.
    luck = Spread(np.where(seeds[:, None] > 1, luck.values, 0.0), luck.weights)
    return largest_of(luck, max(methods - 1, 1))


def largest_of(luck: Spread, methods: int) -> Spread:
    """Widen what is known of the luck of one method to the largest luck of several."""
    one, any_of_them = (luck.reach(RISK / 2 / tests) for tests in (1, methods))
    wider = np.divide(any_of_them, one, out=np.ones_like(one), where=one > 0)
    return luck.scaled(wider**2)


def _moves(sites: Sequence[np.ndarray]) -> tuple[float, float, int]:
    """Return how sites vary together over seeds, the part that is not shared, and the seeds."""
    usable = [values for values in sites if len(values) and np.isfinite(values).all()]
    seeds = sites[0].shape[1] if sites else 1
    if not usable or seeds < 2:
        return 0.0, 0.0, max(seeds, 1)
    known = due_to_examples(usable)
    table = np.array([values.mean(0) for values in usable])
    rest = table - table.mean(0) - table.mean(1, keepdims=True) + table.mean()
    freedom = max((len(usable) - 1) * (seeds - 1), 1)
    alone = max(float((rest**2).sum()) / freedom - float(known.mean()), 0.0)
    precision = 1 / np.maximum(known + alone, 1e-300)
    weights = precision / precision.sum()
    apart = known + alone * freedom / (freedom + DOUBT)
    return float((weights @ table).var(ddof=1)), float(weights**2 @ apart), seeds
