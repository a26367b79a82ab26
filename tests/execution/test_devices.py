"""Another device: everything a step needs is there, and everything it makes comes back.

torch's lazy device stands in for a GPU: it is a device of its own, which refuses tensors of
another, and computes on the processor.
"""

from __future__ import annotations

import pytest
import torch
import torch._lazy.ts_backend
from torch import nn
from toys import arrays, assert_close

import motet
from motet._core import tree
from motet.errors import RequestError

DATA = arrays({"a": 9, "b": 6, "c": 12, "d": 4})
SGD = {"optimizer": motet.Sgd(lr=0.1), "batch_size": 4}
METHODS = [
    motet.FedAvg(**SGD),
    motet.FedPer(**SGD),
    motet.FedRep(**SGD),
    motet.Ditto(**SGD),
    motet.APFL(**SGD),
    motet.Scaffold(**SGD),
    motet.FedAlt(**SGD),
    motet.FedFomo(**SGD),
]


def net():
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 3))


@pytest.fixture(scope="module", autouse=True)
def lazy_device():
    torch._lazy.ts_backend.init()


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_training_and_serving_there_agree_with_training_here(method):
    here, there = (
        motet.run(method, motet.Task(net), DATA, rounds=2, seed=3, **place)
        for place in ({}, {"device": "lazy"})
    )
    assert_close(there.server, here.server, 1e-5)
    for client in DATA.clients:
        assert_close(there.clients[client], here.clients[client], 1e-5)
    scores = [[row.loss for row in run.evaluate("train").rows] for run in (here, there)]
    assert scores[1] == pytest.approx(scores[0], abs=1e-5)


def test_what_comes_back_lies_in_main_memory():
    run = motet.run(motet.FedPer(**SGD), motet.Task(net), DATA, rounds=1, device="lazy")
    kept = [run.server, dict(run.clients), run.personal("a")]
    assert {leaf.device.type for part in kept for leaf in tree.leaves(part)} == {"cpu"}


def test_traced_steps_run_there_too():
    runs = [
        motet.run(motet.FedAvg(**SGD), motet.Task(net), DATA, rounds=2, traced=True, **place)
        for place in ({}, {"device": "lazy"})
    ]
    assert_close(runs[1].server, runs[0].server, 1e-5)


def test_a_device_that_is_not_there_is_refused_in_a_sentence():
    with pytest.raises(RequestError, match='device="cuda" cannot be used here'):
        motet.run(motet.FedAvg(**SGD), motet.Task(net), DATA, rounds=1, device="cuda")
    with pytest.raises(RequestError, match='device="toaster" cannot be used here'):
        motet.run(motet.FedAvg(**SGD), motet.Task(net), DATA, rounds=1, device="toaster")
