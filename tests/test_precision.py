"""Networks and data of other precisions than float32: kept as they are, everywhere."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from toys import arrays

import motet
from motet import Task
from motet._core import tree
from motet._core.neighbours import squared_distances
from motet._engine.federation import start
from motet.data import from_arrays
from motet.data._remarks import remarks
from motet.errors import RequestError
from motet.methods._catalog import method_class, method_names
from motet.testing._driving import states
from motet.testing._worlds import TinyNet

METHODS = {name: method_class(name)(batch_size=4) for name in method_names()} | {
    "knn-per with prototypes": motet.KNNPer(batch_size=4, prototypes=4),
    "knn-per with a fixed lam": motet.KNNPer(batch_size=4, lam=0.3),
    "fedavg with adam": motet.FedAvg(batch_size=4, optimizer=motet.Adam(lr=0.01)),
    "fedproto by its head": motet.FedProto(batch_size=4, inference="head"),
}
DATA = arrays({"a": 9, "b": 6, "c": 1})


def task_for(name, precision):
    def build():
        # MOCHA solves one linear layer only.
        return (nn.Linear(4, 3) if name == "mocha" else TinyNet(nn.Dropout(0.2))).to(precision)

    return Task(build)


def kinds(value):
    return {leaf.dtype for leaf in tree.leaves(value) if leaf.is_floating_point() and leaf.numel()}


@pytest.mark.parametrize("name", METHODS)
def test_a_double_network_stays_double_and_agrees_to_double_precision(name):
    runs = [
        motet.run(METHODS[name], task_for(name, torch.float64), DATA, rounds=2, backend=backend)
        for backend in ("serial", "auto")
    ]
    for run in runs:
        personal = [run.personal(client) for client in DATA.clients]
        assert kinds((states(run)["server"], states(run)["clients"], tuple(personal))) == {
            torch.float64
        }
    oracle, chosen = map(states, runs)
    named = dict(tree.flatten(chosen))
    for path, leaf in tree.flatten(oracle):
        torch.testing.assert_close(named[path], leaf, rtol=1e-9, atol=1e-9)
    losses = [[row.loss for row in run.evaluate("test").rows] for run in runs]
    assert losses[1] == pytest.approx(losses[0], abs=1e-9)


@pytest.mark.parametrize("precision", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["fedper", "ditto", "apfl", "fedproto", "flow", "knn-per"])
def test_a_network_of_half_precision_trains_and_stays_so(name, precision):
    run = motet.run(METHODS[name], task_for(name, precision), DATA, rounds=1)
    assert kinds(run.server) == {precision}
    assert all(np.isfinite(row.loss) for row in run.evaluate("test").rows)


def doubles(**options):
    rng = np.random.default_rng(0)
    train = {"a": (rng.normal(size=(6, 4)), rng.integers(0, 3, 6))}
    return from_arrays(train, test=train, classes=3, **options)


def test_doubles_are_rounded_with_a_remark_that_says_how_to_keep_them():
    rounded = doubles()
    assert rounded.examples("a", "train").x.dtype == torch.float32
    (remark,) = start(motet.FedAvg(), task_for("", torch.float32), rounded, rounds=1).warnings
    assert "are float64 and are read as float32" in remark
    assert 'precision="float64"' in remark
    assert remarks(doubles(precision="float32")) == []


def test_doubles_can_be_kept():
    kept = doubles(precision="float64")
    assert remarks(kept) == []
    x = kept.examples("a", "train").x
    assert x.dtype == torch.float64
    assert torch.equal(x, torch.from_numpy(np.random.default_rng(0).normal(size=(6, 4))))


def test_values_to_predict_can_be_kept_too():
    train = {"a": (np.ones((3, 1)), np.array([0.1, 0.2, 0.3]))}
    assert from_arrays(train, precision="float64").examples("a", "train").y.dtype == torch.float64
    assert remarks(from_arrays(train))[0].startswith('the inputs and targets of "arrays"')


def test_an_unknown_precision_is_refused():
    with pytest.raises(RequestError, match=r'precision= is "float32" or "float64"; got "?\'half'):
        doubles(precision="half")


@pytest.mark.parametrize("precision", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("kept", ["float32", "float64"])
def test_inputs_get_the_precision_of_the_network(precision, kept):
    run = motet.run(
        motet.FedPer(batch_size=4), task_for("", precision), doubles(precision=kept), rounds=1
    )
    assert kinds(run.server) == {precision}
    assert run.predict("a", np.zeros((2, 4))).dtype == precision


def test_distances_keep_the_precision_of_what_is_compared():
    for precision in (torch.float32, torch.float64):
        a = torch.tensor([[0.1, 0.2]], dtype=precision)
        assert squared_distances(a, a + 1).dtype == precision


def test_a_remark_about_the_data_makes_no_method_unsuited():
    from motet._compare.references import why_unsuited

    assert why_unsuited(motet.FedPer(), task_for("", torch.float32), doubles()) == ""
