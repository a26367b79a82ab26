"""FedAvg + shared data against FedAvg, and what it does to the data of a run."""

from __future__ import annotations

import numpy as np
import pytest
from arithmetic import BACKENDS, NORMED, classes, differ, finish
from toys import assert_same

import motet
from motet import FedAvg, Sgd
from motet._compare.compare import compare
from motet.data import from_arrays
from motet.errors import RequestError
from motet.methods._fedavg_shared import FedAvgShared
from motet.testing import quadratic


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


def test_with_an_empty_pool_it_is_fedavg_to_the_last_bit(backend):
    data, settings = classes(), {"epochs": 2, "batch_size": 4}
    run = finish(FedAvgShared(beta=0.0, **settings), NORMED, data, backend, rounds=2)
    avg = finish(FedAvg(**settings), NORMED, data, backend, rounds=2)
    assert_same(run.server, avg.server)
    assert any("beta=0 is fedavg" in warning for warning in run.warnings)


@pytest.mark.parametrize("donors", ["keep", "give"])
def test_it_is_fedavg_on_the_federation_that_shares(donors, backend):
    data, settings = classes(), {"epochs": 2, "batch_size": 4}
    knobs = {"beta": 0.3, "alpha": 0.5, "donors": donors}
    run = finish(FedAvgShared(pool_seed=5, **knobs, **settings), NORMED, data, backend, rounds=2)
    shared = data.share(seed=5, **knobs)
    assert_same(run.server, finish(FedAvg(**settings), NORMED, shared, backend, rounds=2).server)


def test_the_default_shares_something(backend):
    data = classes()
    run = finish(FedAvgShared(), NORMED, data, backend)
    assert not run.warnings
    assert differ(run.server, finish(FedAvg(), NORMED, data, backend).server)


@pytest.mark.parametrize(
    "knob", [{"beta": 0.9}, {"alpha": 0.3}, {"donors": "give"}, {"pool_seed": 1}], ids=str
)
def test_every_knob_changes_the_result(knob):
    data, plain = classes(), {"beta": 0.5}
    one, other = (finish(FedAvgShared(**k), NORMED, data) for k in (plain, plain | knob))
    assert differ(one.server, other.server)


def test_a_client_counts_with_all_it_trains_on(backend):
    """With everything in the pool, all clients hold the same ten targets."""
    world = quadratic({"a": [0.0], "b": [1.0] * 9})
    method = FedAvgShared(beta=1.0, batch_size=None, optimizer=Sgd(lr=1.0))
    run = motet.run(method, world.task, world.data, rounds=1, backend=backend)
    assert run.server["w"].item() == pytest.approx(0.9, abs=1e-6)
    assert run.setting.weight("a") == run.setting.weight("b") == 10.0


def test_the_callers_federation_stays_as_it_was_and_tests_are_a_clients_own():
    data = classes()
    before = data.hash
    run = finish(FedAvgShared(beta=1.0), NORMED, data)
    assert data.hash == before
    sizes = {row.client: row.examples for row in run.evaluate(split="test").rows}
    assert sizes == data.sizes("test")


def test_in_a_comparison_the_others_train_on_their_own_data():
    data, settings = classes(), {"epochs": 1, "batch_size": 4}
    table = compare([FedAvgShared(beta=0.5, **settings)], NORMED, data, rounds=1, seeds=1)
    gradients = {row.label: row.cost.gradients for row in table.rows}
    own = sum(data.sizes().values())
    assert gradients["fedavg"] == own
    assert gradients["fedavg-shared"] > 2 * own


def test_the_seed_of_a_run_does_not_change_the_pool():
    hashes = {
        finish(FedAvgShared(beta=0.5), NORMED, classes(), rounds=0, seed=s).setting.federation.hash
        for s in (0, 1)
    }
    assert len(hashes) == 1


def test_a_pool_of_regression_rows_is_drawn_without_classes():
    x = np.ones((6, 2), np.float32)
    data = from_arrays({c: (x, np.linspace(0, 1, 6)) for c in "ab"})
    assert data.share(beta=0.5).sizes()["a"] > 6


def test_impossible_shares_are_refused_before_the_first_round():
    with pytest.raises(RequestError, match="beta= is a share of the training rows"):
        FedAvgShared(beta=1.5)
