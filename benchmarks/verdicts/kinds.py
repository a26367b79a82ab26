"""The kinds of worlds that verdicts are held to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from planted import World

SITES = (4, 10, 50, 500)
SEEDS = (1, 2, 3, 5)
BETTER = 0.15  # gain of the better method, where there is one


def kinds(sites: int, seeds: int) -> Iterator[tuple[str, World]]:
    """Yield every kind of world, with a name."""
    equal = World(sites=sites, seed_count=seeds, clients=0.0)
    better = World(sites=sites, seed_count=seeds, effect=BETTER)
    some = ((0.8, 0.1), (0.2, -0.2))
    yield "equal", equal
    yield "equal, sites differ", World(sites=sites, seed_count=seeds)
    yield "equal, heavy seed noise", replace(equal, seeds=0.06, alone=0.03)
    yield "equal, seeds shared by methods", replace(equal, seeds=0.06, seed_shape="shared")
    yield "equal, unequal seed noise", replace(equal, seeds=0.02, seed_shape="unequal")
    yield "equal, heavy tails", World(sites=sites, seed_count=seeds, shape="t3", seed_shape="t3")
    yield "equal, a few lose much", World(sites=sites, seed_count=seeds, shape="skewed")
    yield "equal, tiny sites", replace(equal, rows=(3, 12))
    yield "equal, near the bound", replace(equal, base=0.96)
    yield "better for all", better
    yield "better for all, by 30", replace(better, effect=0.3, base=0.55, seeds=0.02)
    yield "better, harmful for some", replace(better, groups=some, clients=0.02)
    yield "better for one cluster", replace(better, groups=((0.5, 0.15), (0.5, -0.15)), clients=0.0)
    yield "better, heavy seed noise", replace(better, seeds=0.06, alone=0.03)
    yield "better, heavy tails", replace(better, shape="t3", seed_shape="t3")
    yield "better, tiny sites", replace(better, rows=(3, 12))
    yield "better, near the bound", replace(better, base=0.82)


def fresh_kinds(sites: int, seeds: int) -> Iterator[tuple[str, World]]:
    """Yield kinds of worlds that nothing was chosen on."""
    for start, effect in (("equal", 0.0), ("better", BETTER)):
        plain = World(sites=sites, seed_count=seeds, effect=effect)
        yield f"{start}, a few gain much", replace(plain, shape="lognormal", clients=0.08)
        yield f"{start}, triples of sites gain alike", replace(plain, together=3)
        yield f"{start}, fives of sites gain alike", replace(plain, together=5)
        yield f"{start}, luck of Laplace", replace(plain, seeds=0.02, seed_shape="laplace")
        yield (
            f"{start}, luck differs by a factor of 3",
            replace(plain, seeds=0.02, seed_shape="unequal"),
        )
        yield f"{start}, two methods have five times the luck", replace(plain, seed_shape="two")
        yield f"{start}, seven methods", replace(plain, methods=7)
        yield f"{start}, sites of 10 to 30 examples", replace(plain, rows=(10, 30))
        yield f"{start}, sites differ by 10 points", replace(plain, clients=0.14)
        yield f"{start}, seeds matter at single sites", replace(plain, alone=0.04, seeds=0.0)


def second_kinds(sites: int, seeds: int) -> Iterator[tuple[str, World]]:
    """Yield kinds of worlds that were fresh once, and have been looked at since."""
    plain = World(sites=sites, seed_count=seeds)
    better = replace(plain, effect=BETTER)
    yield "equal, gains of Laplace", replace(plain, shape="laplace", clients=0.08)
    yield "equal, gains with two peaks", replace(plain, shape="two peaks", clients=0.08)
    yield "equal, pairs of sites gain alike", replace(plain, together=2)
    yield "equal, one method has ten times the luck", replace(plain, seed_shape="one")
    yield "equal, two methods", replace(plain, methods=2)
    yield "equal, ten methods", replace(plain, methods=10)
    yield "equal, sites of 5 to 1000 examples", replace(plain, rows=(5, 1000))
    yield "equal, sites with luck of their own", replace(plain, alone=0.06)
    yield "better, gains of Laplace", replace(better, shape="laplace", clients=0.08)
    yield "better, gains with two peaks", replace(better, shape="two peaks", clients=0.08)
    yield "better, pairs of sites gain alike", replace(better, together=2)
    yield "better, one method has ten times the luck", replace(better, seed_shape="one")
    yield "better, two methods", replace(better, methods=2)
    yield "better, ten methods", replace(better, methods=10)
    yield "better, sites of 5 to 1000 examples", replace(better, rows=(5, 1000))
    yield "better, sites with luck of their own", replace(better, alone=0.06)
