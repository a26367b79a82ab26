"""Every network with every method: `auto` gives what `serial` gives, or both refuse alike."""

from __future__ import annotations

import pytest
from law import METHODS, assert_law
from networks import DEEP, NETWORKS

pytestmark = pytest.mark.matrix

TRACED = ("fedper", "ditto", "fedavg-ft")  # also with traced steps


def traced(network, method):
    """Tracing a deep network takes seconds: each is traced with one of the methods, in turn."""
    if network in DEEP:
        return method == TRACED[DEEP.index(network) % len(TRACED)]
    return method in TRACED


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("network", NETWORKS)
def test_auto_agrees_with_serial(network, method):
    assert_law(network, METHODS[method], traced=traced(network, method))
