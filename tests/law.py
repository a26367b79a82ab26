"""The law that `backend="auto"` never fails where `serial` works, and gives the same results."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import torch
from awkward_networks import AWKWARD
from networks import NETWORKS, data_for

import motet
from motet import Task
from motet._core import tree
from motet._engine.federation import Run, start
from motet.errors import MotetError
from motet.method import AnyMethod
from motet.testing._driving import states

SMALL = {"optimizer": motet.Sgd(lr=0.02), "batch_size": 4, "adapt_epochs": 1}
METHODS: dict[str, AnyMethod] = {
    method.name: method
    for method in (
        motet.Local(**SMALL),
        motet.FedAvg(**SMALL),
        motet.FedAvgFT(**SMALL),
        motet.FedPer(**SMALL),
        motet.FedRep(**SMALL),
        motet.FedAlt(**SMALL),
        motet.Ditto(**SMALL),
        motet.APFL(**SMALL),
        motet.PFedMe(**SMALL, inner_steps=2),
        motet.Scaffold(**SMALL),
        motet.FedFomo(**SMALL),
        motet.KNNPer(**SMALL),
        motet.Flow(**SMALL),
        motet.IFCA(**SMALL),
        motet.FedProto(**SMALL),
        motet.PerFedAvg(**SMALL),
    )
}
ROUNDING = 1e-5
DOUBLE_ROUNDING = 1e-9


def started(
    network: str, method: AnyMethod, backend: str, *, double: bool = False, **options: Any
) -> Run | str:
    """Start a run; what is refused is refused here, in a sentence."""
    made = (NETWORKS | AWKWARD)[network]
    build = (lambda: made.build().double()) if double else made.build
    try:
        task, data = Task(build=build), data_for(made)
        return start(method, task, data, rounds=2, backend=backend, **options)
    except MotetError as refusal:
        return str(refusal)


def finish(run: Run) -> dict[str, Any]:
    """Run two rounds, and gather all that can be compared."""
    for _ in range(2):
        run.advance()
    scored = run.evaluate("test")
    losses = torch.tensor([row.loss for row in scored.rows], dtype=torch.float64)
    return {**states(run), "scores": losses}


def assert_law(network: str, method: AnyMethod, *, traced: bool = False) -> None:
    """Compare "auto" with the oracle: the same results, or the same refusal before round 1.

    With `traced`, also compare "auto" with its steps traced, however short the run is.
    """
    if largest_gap(network, method, traced=traced) > ROUNDING:
        # Deep networks that normalise over a few examples amplify rounding without bound, in double
        # precision too. A single step over all examples, in double precision, must agree.
        once = calm(method)
        assert largest_gap(network, once, traced=traced, double=True) <= DOUBLE_ROUNDING


def largest_gap(
    network: str, method: AnyMethod, *, traced: bool = False, double: bool = False
) -> float:
    """Return how far "auto" is from the oracle, relative to the size of each tensor."""
    oracle = started(network, method, "serial", double=double)
    expected = oracle if isinstance(oracle, str) else finish(oracle)
    gaps = [0.0]
    for options in ({}, {"traced": True}) if traced else ({},):
        chosen = started(network, method, "auto", double=double, **options)
        if isinstance(expected, str) or isinstance(chosen, str):
            assert chosen == expected
        else:
            gaps.append(distance(expected, finish(chosen)))
    return max(gaps)


def calm(method: AnyMethod) -> AnyMethod:
    """Let a method take one step over all examples where it takes several over a few."""
    once = {"batch_size": None, "epochs": None, "steps": 1, "inner_steps": 1}
    known = {field.name for field in fields(method)}
    return replace(method, **{name: value for name, value in once.items() if name in known})


def distance(expected: dict[str, Any], got: dict[str, Any]) -> float:
    """Return the largest gap between two results, relative to the size of each tensor."""
    named, gaps = dict(tree.flatten(got)), [0.0]
    for path, leaf in tree.flatten(expected):
        assert named[path].dtype == leaf.dtype, path
        if leaf.numel():
            gap = (named[path].double() - leaf.double()).abs().max()
            gaps.append(float(gap / (1 + leaf.double().abs().max())))
    return max(gaps)
