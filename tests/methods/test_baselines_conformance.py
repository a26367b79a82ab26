"""The conformance suite on drift control, server optimizers, shared data and robust combination."""

from __future__ import annotations

import pytest

from motet import FedAvg, FedPer
from motet.catalog import method_class
from motet.optim import Adagrad
from motet.robust import ClippedMean, Krum, Median, TrimmedMean
from motet.testing import check_method

NAMES = (
    "fedavg-shared",
    "fedprox",
    "scaffold",
    "feddyn",
    "moon",
    "fedavgm",
    "fedadam",
    "fedyogi",
    "fedadagrad",
)
Scaffold, FedDyn = method_class("scaffold"), method_class("feddyn")
CONFIGURATIONS = (
    *(method_class(name)() for name in NAMES),
    Scaffold(option="I", norm="local_stats", reduce=ClippedMean(weights="uniform")),
    FedDyn(norm="local_layers", reduce=Median()),
    FedPer(server_optimizer=Adagrad(beta=0.5), reduce=TrimmedMean()),
    FedAvg(reduce=Krum(keep=2)),
)


@pytest.mark.parametrize("method", CONFIGURATIONS, ids=lambda m: f"{m.name}-{m.reduce}")
def test_every_promise_is_kept(method):
    check_method(method)


@pytest.mark.parametrize("name", NAMES)
def test_the_catalog_knows_the_method_by_its_own_name(name):
    assert method_class(name).name == name
