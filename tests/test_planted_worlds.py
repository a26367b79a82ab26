"""Verdicts on planted worlds, in small: `benchmarks/verdicts` measures the same at length."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks" / "verdicts"))

from planted import World
from rates import measure

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seeds", [1, 2, 3])
@pytest.mark.parametrize("noise", [0.01, 0.06])
def test_equal_methods_are_not_told_apart(seeds, noise):
    world = World(sites=6, seed_count=seeds, clients=0.0, seeds=noise, methods=4)
    found = measure(world, 25)
    assert found.wrong == 0
    assert found.worlds_with_wrong_sites == 0


@pytest.mark.parametrize("seeds", [2, 3])
def test_a_gain_of_thirty_points_is_seen_on_average_and_at_every_client(seeds):
    world = World(sites=12, seed_count=seeds, effect=0.3, base=0.55, methods=4)
    found = measure(world, 15)
    assert found.visible == 15
    assert found.right >= 14
    assert found.share("right_sites", "visible_sites") >= 0.95
    assert found.wrong <= 1  # of 15 worlds
    assert found.worlds_with_wrong_sites == 0


def test_clients_that_are_harmed_by_a_good_method_are_told():
    groups = ((0.7, 0.15), (0.3, -0.35))
    world = World(sites=10, seed_count=3, effect=0.1, groups=groups, clients=0.0, methods=3)
    found = measure(world, 12)
    assert found.worlds_with_wrong_sites == 0
    assert found.share("right_sites", "visible_sites") >= 0.95
