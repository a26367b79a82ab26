"""The conformance suite on every method of the catalogue, and on options that change what runs."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from motet import (
    APFL,
    CFL,
    Adam,
    Ditto,
    FedAlt,
    FedAvg,
    FedDyn,
    FedFomo,
    FedPer,
    FedProto,
    FedRep,
    FedSim,
    Flow,
    KNNPer,
    LGFedAvg,
    Mean,
    PerFedAvg,
    Scaffold,
    Sgd,
)
from motet._core.aggregation.robust import ClippedMean, Krum, Median, TrimmedMean
from motet._core.selectors import Blocks
from motet.methods import _catalog as catalog
from motet.methods._catalog import method_class, method_names
from motet.methods._flow.dynamic_routing import DynamicRouting
from motet.optim import Adagrad
from motet.testing import ConformanceError, batch_norm, check_method, ragged

BRIEF = {"epochs": 1, "local_epochs": 1, "adapt_epochs": 1}
VARIANTS = (
    FedAvg(server_optimizer=Sgd(lr=1.0, momentum=0.9)),
    FedAvg(reduce=Krum(keep=2)),
    FedPer(norm="local_stats", head_init="common"),
    FedPer(server_optimizer=Adagrad(beta=0.5), reduce=TrimmedMean()),
    FedPer(head_epochs=1, norm="local_layers", personal=Blocks(last=2)),
    Scaffold(option="I", norm="local_stats", reduce=ClippedMean(weights="uniform")),
    FedDyn(norm="local_layers", reduce=Median()),
    LGFedAvg(server_optimizer=Sgd(lr=0.5, momentum=0.5)),
    FedRep(head_epochs=2, adapt_epochs=1, norm="local_layers"),
    Ditto(personal_epochs=2, server_optimizer=Sgd(lr=0.5, momentum=0.5)),
    APFL(adaptive=False, alpha=0.3),
    PerFedAvg(variant="fo"),
    PerFedAvg(variant="exact"),
    CFL(clusters=3, warmup=0, settled=5.0, alike=2.0),  # splits at once
    FedProto(inference="head"),
    KNNPer(lam=0.5, k=3, kernel="gauss_dim", interpolate="logits"),
    KNNPer(capacity=4),
    KNNPer(capacity=0.5, prototypes=2, prototype_steps=2),
    FedAlt(personal_steps=2, shared_steps=1, replay=True, pull=0.1),
    FedAlt(keep_personal=False, norm="local_stats", server_optimizer=Adam(lr=1e-3)),
    FedSim(personal_optimizer=Sgd(lr=0.01, momentum=0.9), norm="local_layers"),
    FedSim(keep_personal=False, pull=0.1, pull_to="zero", reduce=Mean(weights="batches")),
    FedFomo(epochs=1, models=3, explore=0.0, norm="l1", fallback="current"),
    FedFomo(epochs=1, models=1, norm="l2sq"),
    FedFomo(epochs=1, models=3, weighting="leave_one_out"),
    FedFomo(epochs=1, hierarchical=2),
    Flow(disjoint=False, policy_optimizer=Sgd(lr=0.3, clip=1.0), favour="local", **BRIEF),
    Flow(layers=("head",), hidden=(), temperature=0.5, **BRIEF),
    DynamicRouting(layers=("head",), hidden=(), steps=2),
)


def entry(name):
    """Make a method of the catalogue with its defaults, but phases short enough to try."""
    method = method_class(name)()
    assert method.name == name
    long = {
        field.name: 2
        for field in fields(method)
        if field.name.endswith(("epochs", "_steps")) and (getattr(method, field.name) or 0) > 2
    }
    return replace(method, **long)


def described(method):
    """Write what differs from the defaults."""
    default = type(method)()
    names = (f.name for f in fields(method) if getattr(method, f.name) != getattr(default, f.name))
    return f"{method.name}-{'-'.join(names)}"


@pytest.mark.parametrize("name", method_names())
def test_every_entry_of_the_catalogue_keeps_every_promise(name):
    check_method(entry(name))


@pytest.mark.parametrize("method", VARIANTS, ids=described)
@pytest.mark.slow
def test_variants_keep_every_promise(method):
    """In one world: the methods themselves are tried in all of them."""
    keeps_statistics = getattr(method, "norm", "shared") != getattr(
        type(method)(), "norm", "shared"
    )
    world = batch_norm() if keeps_statistics else ragged()
    check_method(method, world.task, world.data)


def test_a_new_entry_is_checked_without_another_line(monkeypatch):
    monkeypatch.setitem(catalog._TABLE, "prints", "test_planted_mistakes:Prints")
    assert "prints" in method_names()
    with pytest.raises(ConformanceError, match="prints fails nothing_is_printed"):
        test_every_entry_of_the_catalogue_keeps_every_promise("prints")
