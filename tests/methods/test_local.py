"""Local: every client trains alone."""

from __future__ import annotations

import pytest
import torch
from toys import arrays, assert_close, assert_same

import motet
from motet import FedAvg, Local, Sgd
from motet._core import tree
from motet.data import from_arrays
from motet.testing import quadratic, ragged

TASK = ragged().task

pytestmark = pytest.mark.parametrize("backend", ["serial", "vectorized"])


def test_every_client_reaches_its_own_optimum(backend):
    world = quadratic({"a": [1.0, 3.0], "b": [8.0], "c": [-4.0]})
    method = Local(optimizer=Sgd(lr=0.5), epochs=2, batch_size=None)
    run = motet.run(method, world.task, world.data, rounds=3, init={"w": [0.0]}, backend=backend)
    kept = {c: run.clients[c]["w"].item() for c in "abc"}
    shrunk = 1 - 0.5**6
    assert kept == pytest.approx({"a": 2 * shrunk, "b": 8 * shrunk, "c": -4 * shrunk})


def test_alone_it_is_fedavg_with_one_client(backend):
    data = arrays({"only": 9})
    local, fedavg = (
        motet.run(m(batch_size=4, epochs=2), TASK, data, rounds=3, backend=backend)
        for m in (Local, FedAvg)
    )
    assert_same(local.clients["only"], fedavg.server)


def test_nothing_crosses_the_network_and_the_server_knows_nothing(backend):
    data = arrays({"a": 6, "b": 4})
    (round_,) = motet.rounds(Local(), TASK, data, rounds=1, backend=backend)
    assert round_.bytes_down == round_.bytes_up == 0
    assert round_.server == {}


def test_other_clients_data_change_nothing(backend):
    data = arrays({"a": 6, "b": 4})
    mine = tuple(data.examples("a", "train"))
    others = from_arrays(
        {"a": mine, "b": (torch.ones(9, 4), torch.zeros(9, dtype=torch.int64))}, classes=3
    )
    first, second = (
        motet.run(Local(batch_size=4), TASK, d, rounds=2, backend=backend) for d in (data, others)
    )
    assert_close(first.clients["a"], second.clients["a"], 1e-7)


def test_a_client_trains_only_when_it_is_sampled(backend):
    data = arrays(dict.fromkeys("abcd", 5))
    run = motet._engine.federation.start(Local(), TASK, data, rounds=3, cohort=2, backend=backend)
    for _ in range(3):
        before = tree.clone(dict(run.clients))
        cohort = run.advance().cohort
        changed = {
            c
            for c in "abcd"
            if not torch.equal(before[c]["head.bias"], run.clients[c]["head.bias"])
        }
        assert changed == set(cohort)


def test_a_new_client_trains_from_the_common_start(backend):
    world = quadratic({"a": [1.0]})
    method = Local(optimizer=Sgd(lr=0.5), adapt_epochs=3)
    run = motet.run(method, world.task, world.data, rounds=2, init={"w": [0.0]}, backend=backend)
    served = run.adapt([[0.0]], [8.0]).personal
    assert served["w"].item() == pytest.approx(8 * (1 - 0.5**3))
