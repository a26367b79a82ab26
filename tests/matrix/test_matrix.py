"""Every network with every method: `auto` gives what `serial` gives, or both refuse alike."""

from __future__ import annotations

import pytest
from law import METHODS, assert_law
from networks import NETWORKS

pytestmark = pytest.mark.matrix

TRACED = ("fedper", "ditto", "fedavg-ft")  # with traced steps too: for each network one, in turn


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("network", NETWORKS)
def test_auto_agrees_with_serial(network, method):
    turn = list(NETWORKS).index(network)
    assert_law(network, METHODS[method], traced=method == TRACED[turn % len(TRACED)])
