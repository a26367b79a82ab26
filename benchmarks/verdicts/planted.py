"""Planted worlds: methods with known gains, drawn down to the single test example.

A method is right about an example if a normal variable falls below a threshold. The threshold is
set by the method's accuracy at the site with the seed; the variable is partly the example's own
difficulty, which all methods and seeds share.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from scipy.special import ndtr, ndtri

Shape = Literal["normal", "t3", "skewed", "laplace", "two peaks", "lognormal"]
SeedShape = Literal["alike", "shared", "unequal", "t3", "one", "two", "laplace"]


@dataclass(frozen=True, kw_only=True)
class World:
    """The truth about several methods; the first one is the reference, the second the better one.

    All amounts are differences of accuracy.

    Attributes:
        effect: Mean gain of the second method over all others.
        groups: Shares of groups of sites, and their gains around `effect`; of the second method.
        clients: Standard deviation of gains over sites.
        shape: Distribution of gains over sites.
        together: Sites that share their gain, such as hospitals of one group.
        seeds: Standard deviation of a method's luck with a seed, which all sites share.
        alone: The same for each site on its own.
        seed_shape: "alike": every method has its own luck, of the same size. "shared": all methods
            but the reference share most of it. "unequal": sizes differ by a factor of 3, typically.
            "t3": every method has its own, with heavy tails. "one": one method has ten times the
            luck of the others. "two": two methods have five times. "laplace": as "t3", with tails
            that are less heavy.
        base: Accuracy of the reference.
        rows: Fewest and most test examples of a site.
    """

    sites: int
    seed_count: int
    methods: int = 5
    effect: float = 0.0
    groups: tuple[tuple[float, float], ...] = ((1.0, 0.0),)
    clients: float = 0.05
    shape: Shape = "normal"
    together: int = 1
    seeds: float = 0.01
    alone: float = 0.01
    seed_shape: SeedShape = "alike"
    base: float = 0.7
    rows: tuple[int, int] = (40, 200)
    difficulty: float = 0.5  # share of the variance that is the example's


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A world's truth and what a comparison would see of it.

    Attributes:
        right: For each method and site, whether predictions are right: [examples, seeds].
        truth: True mean gain of each method over the reference, over all sites of this kind.
        site_truth: True gain of each method at each site, over seeds and examples.
        world: How it was drawn.
    """

    right: list[list[np.ndarray]]
    truth: np.ndarray
    site_truth: np.ndarray
    world: World = field(repr=False)


def draw(world: World, rng: np.random.Generator) -> Drawn:
    """Draw a world."""
    alike = replace(world, groups=((1.0, 0.0),))
    gains = np.stack([_site_gains(alike, rng) for _ in range(world.methods)])
    gains[0] = 0.0
    gains[1] = world.effect + _site_gains(world, rng)
    luck = _luck(world, rng)
    own = world.alone * rng.normal(size=(world.methods, world.sites, world.seed_count))
    hardness = 0.05 * rng.normal(size=(1, world.sites, 1))
    accuracy = np.clip(world.base + hardness + gains[:, :, None] + luck + own, 0.005, 0.995)
    truth = np.clip(world.base + hardness + gains[:, :, None], 0.005, 0.995)[:, :, 0]
    rows = rng.integers(world.rows[0], world.rows[1] + 1, size=world.sites)
    right: list[list[np.ndarray]] = [[] for _ in range(world.methods)]
    for site, count in enumerate(rows):
        example = np.sqrt(world.difficulty) * rng.normal(size=(count, 1))
        for method in range(world.methods):
            rest = rng.normal(size=(count, world.seed_count))
            score = example + np.sqrt(1 - world.difficulty) * rest
            right[method].append((score < ndtri(accuracy[method, site])).astype(float))
    return Drawn(
        right=right,
        truth=np.where(np.arange(world.methods) == 1, world.effect, 0.0),
        site_truth=truth - truth[0],
        world=world,
    )


def _site_gains(world: World, rng: np.random.Generator) -> np.ndarray:
    shares, levels = np.array(world.groups).T
    group = rng.choice(len(levels), p=shares / shares.sum(), size=world.sites)
    draws = {
        "normal": lambda: rng.normal(size=world.sites),
        "t3": lambda: rng.standard_t(3, size=world.sites) / np.sqrt(3),
        "skewed": lambda: 1 - rng.exponential(size=world.sites),  # a few lose much
        "laplace": lambda: rng.laplace(size=world.sites) / np.sqrt(2),
        "two peaks": lambda: rng.choice([-1.0, 1.0], size=world.sites),
        "lognormal": lambda: (rng.lognormal(size=world.sites) - np.exp(0.5)) / 2.16,
    }[world.shape]()
    draws = draws[np.arange(world.sites) // world.together]
    centred = levels - (shares / shares.sum() * levels).sum()
    return centred[group] + world.clients / np.sqrt(2) * draws


def _luck(world: World, rng: np.random.Generator) -> np.ndarray:
    size = (world.methods, 1, world.seed_count)
    luck = rng.normal(size=size)
    if world.seed_shape == "unequal":
        luck *= np.exp(rng.normal(size=(world.methods, 1, 1)))
    elif world.seed_shape == "one":
        luck[-1] *= 10
    elif world.seed_shape == "two":
        luck[-2:] *= 5
    elif world.seed_shape == "laplace":
        luck = rng.laplace(size=size) / np.sqrt(2)
    elif world.seed_shape == "t3":
        luck = rng.standard_t(3, size=size) / np.sqrt(3)
    elif world.seed_shape == "shared":
        luck *= 0.2
        luck[1:] += rng.normal(size=(1, 1, world.seed_count))
    return world.seeds * luck


def mean_error(world: World) -> float:
    """Return the true standard error of a mean gain over the reference."""
    return float(np.sqrt(sum(variances(world))))


def variances(world: World) -> tuple[float, float]:
    """Return the true variance of a mean gain that is due to sites, and that due to seeds."""
    spread = sum(share * (level - _centre(world)) ** 2 for share, level in world.groups)
    rows = np.mean([1 / n for n in range(world.rows[0], world.rows[1] + 1)])
    changes = _changes(world)
    per_client = world.together * world.clients**2 / 2 + spread + changes * rows
    per_seed = 2 * world.seeds**2 + 2 * world.alone**2 / world.sites
    return float(per_client / world.sites), float(per_seed / world.seed_count)


def site_error(world: World, rows: int) -> float:
    """Return the true standard error of a site's gain over the reference."""
    seeds = 2 * (world.seeds**2 + world.alone**2) / world.seed_count
    return float(np.sqrt(_changes(world) / rows + seeds))


def _centre(world: World) -> float:
    return sum(share * level for share, level in world.groups)


def _changes(world: World) -> float:
    """Return the variance of a difference between two methods on an example, over seeds."""
    rng = np.random.default_rng(0)
    example = np.sqrt(world.difficulty) * rng.normal(size=4000)
    p = ndtr((ndtri(world.base) - example) / np.sqrt(1 - world.difficulty))
    return float(2 * (p * (1 - p)).mean() / world.seed_count)
