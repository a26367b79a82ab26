"""Backends: transports that change no result."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn
from toys import ToyAMP, ToyEnsemble, ToyPhases, arrays, assert_close, assert_same

import motet
from motet import Task
from motet._core import tree
from motet._engine.federation import start
from motet.data import from_arrays
from motet.errors import CapabilityError, RequestError
from motet.testing import WORLDS, batch_norm, ragged
from motet.testing._driving import predictions, states
from motet.testing._worlds import TinyNet

SIZES = {"a": 9, "b": 5, "c": 1, "d": 12, "e": 6}


def both(method, task, data, **settings):
    """The same run, on the oracle and stacked."""
    return [
        motet.run(method, task, data, rounds=2, backend=backend, **settings)
        for backend in ("serial", "vectorized")
    ]


def assert_agree(first, second, tolerance=1e-5):
    assert_close(states(first), states(second), tolerance)
    assert_close(predictions(first), predictions(second), tolerance)


@pytest.mark.parametrize(
    ("method", "world"),
    [
        (ToyAMP(), "ragged"),
        (ToyAMP(), "dropout"),  # not with counters: a mixture of counters is no counter
        *[(method, w) for method in (ToyEnsemble(), ToyPhases(batch_size=3)) for w in WORLDS],
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_toy_methods_agree_on_both_backends(method, world):
    made = WORLDS[world]()
    assert_agree(*both(method, made.task, made.data))


def test_gathered_uploads_and_per_client_downloads_meet_their_own_clients():
    data = arrays(SIZES)
    runs = both(ToyAMP(pull=0.0), ragged().task, data)
    local = motet.run(motet.Local(), ragged().task, data, rounds=2, backend="serial")
    for run in runs:  # without a pull, it is local training, and the server holds every model
        assert_close(dict(run.clients), dict(local.clients))
        assert_close(run.server, dict(run.clients))
    pulled = both(ToyAMP(pull=5.0), ragged().task, data)[1]
    assert not torch.allclose(pulled.clients["a"]["head.weight"], local.clients["a"]["head.weight"])


def test_the_first_of_two_models_side_by_side_is_fedavg():
    data, task = arrays(SIZES), ragged().task
    plain = motet.run(motet.FedAvg(), task, data, rounds=2)
    for run in both(ToyEnsemble(), task, data):
        assert_close(tree.row(run.server, 0), plain.server)


NORMS = {
    "group": lambda: TinyNet(nn.GroupNorm(1, 5)),
    "layer": lambda: TinyNet(nn.LayerNorm(5)),
    "batch": lambda: TinyNet(nn.BatchNorm1d(5), bias=False),
    "batch without affine": lambda: TinyNet(nn.BatchNorm1d(5, affine=False), bias=False),
}


@pytest.mark.parametrize("norm", list(NORMS))
@pytest.mark.parametrize(
    "method",
    [
        motet.FedAvg(batch_size=4, epochs=2),
        motet.FedPer(batch_size=4),
        motet.FedPer(norm="local_stats", batch_size=4),
        motet.FedPer(norm="local_layers", batch_size=4),
        ToyPhases(batch_size=4),
    ],
    ids=["fedavg", "fedper", "local_stats", "local_layers", "halves"],
)
def test_every_norm_agrees_on_both_backends(method, norm):
    first, second = both(method, Task(build=NORMS[norm]), arrays(SIZES), cohort=4)
    assert_agree(first, second)


@pytest.mark.parametrize("mode", ["stack", "loop"])
def test_convolutions_agree_in_both_modes(mode):
    rng = np.random.default_rng(0)
    train = {
        c: (rng.normal(size=(n, 1, 4, 4)).astype("float32"), rng.integers(0, 3, n))
        for c, n in SIZES.items()
    }
    data = from_arrays(train, classes=3)

    def build():
        return nn.Sequential(
            nn.Conv2d(1, 4, 3, bias=False),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(16, 3),
        )

    method = motet.FedAvg(batch_size=4)
    oracle = motet.run(method, Task(build=build), data, rounds=2, backend="serial")
    stacked = motet.run(method, Task(build=build), data, rounds=2, backend="vectorized", mode=mode)
    assert_agree(oracle, stacked)


@pytest.mark.parametrize("predict", ["every", "last"])
def test_the_hand_written_lstm_agrees_on_both_backends(predict):
    rng = np.random.default_rng(0)
    length, tokens = 5, 6

    def text(n):
        y = rng.integers(0, tokens, (n, length) if predict == "every" else n)
        return rng.integers(0, tokens, (n, length)), y

    data = from_arrays({c: text(n) for c, n in SIZES.items()}, classes=tokens)

    def build():
        return motet.models.CharLSTM((length,), tokens, predict=predict, embedding=3, hidden=4)

    first, second = both(motet.FedPer(batch_size=4), Task(build=build), data)
    assert_agree(first, second)


def test_workers_change_not_one_bit_and_chunks_no_more_than_rounding():
    data, task = arrays({f"c{i}": 3 + i for i in range(9)}), ragged().task
    method = motet.FedPer(batch_size=4)
    runs = {
        (chunk, workers): motet.run(
            method, task, data, rounds=1, backend="vectorized", chunk_size=chunk, workers=workers
        )
        for chunk, workers in ((2, 1), (2, 4), (9, 1), (1, 2))
    }
    assert_same(states(runs[2, 1]), states(runs[2, 4]))
    for pair in ((9, 1), (1, 2)):
        assert_agree(runs[2, 1], runs[pair], 1e-6)


def test_a_small_client_is_not_changed_by_the_large_one_it_is_stacked_with():
    data = arrays({"small": 3, "large": 40})
    task, method = batch_norm().task, motet.Local(batch_size=4, epochs=2)
    together = motet.run(method, task, data, rounds=2, backend="vectorized")
    alone = motet.run(method, task, data.select(["small"]), rounds=2, backend="serial")
    assert_close(together.clients["small"], alone.clients["small"])


@pytest.mark.parametrize("backend", ["serial", "vectorized"])
def test_bytes_and_gradients_are_counted_over_the_cohort(backend):
    data, task = arrays({"a": 6, "b": 4}), ragged().task
    run = start(motet.FedPer(epochs=3), task, data, rounds=1, backend=backend)
    round_ = run.advance()
    body = 4 * (4 * 5 + 5)
    assert round_.bytes_down == round_.bytes_up == 2 * body
    assert round_.gradients == 3 * (6 + 4)


@pytest.mark.parametrize("backend", ["serial", "vectorized"])
def test_weights_may_be_examples_batches_or_equal(backend):
    data, task = arrays({"a": 9, "b": 3}), ragged().task
    alone = {
        c: motet.run(motet.FedAvg(batch_size=4), task, data.select([c]), rounds=1).server
        for c in "ab"
    }
    shares = {"examples": 9 / 12, "batches": 3 / 4, "uniform": 1 / 2}
    for weights, share in shares.items():
        method = motet.FedAvg(batch_size=4, reduce=motet.Mean(weights=weights))
        run = motet.run(method, task, data, rounds=1, backend=backend)
        assert_close(run.server, tree.interpolate(alone["b"], alone["a"], share))


def test_a_method_that_looks_at_values_is_refused_by_the_stack_and_runs_singly():
    class Peeking(motet.FedAvg):
        vectorizable = False

    data, task = arrays({"a": 6}), ragged().task
    with pytest.raises(
        CapabilityError, match='cannot be stacked over clients; use backend="serial"'
    ):
        motet.run(Peeking(), task, data, rounds=1, backend="vectorized")
    assert motet.run(Peeking(), task, data, rounds=1).backend.name == "serial"


class Fragile(motet.FedAvg):
    """A method that breaks when it is told to."""

    broken: ClassVar[list[bool]] = [False]

    def client_update(self, down, client, data, task):
        if self.broken[0]:
            raise ZeroDivisionError("by nothing")
        return super().client_update(down, client, data, task)


@pytest.mark.parametrize("backend", ["serial", "vectorized"])
def test_an_error_inside_a_method_says_in_which_round_and_whose(backend, monkeypatch):
    data = arrays({"a": 4, "b": 5})
    run = start(Fragile(), ragged().task, data, rounds=1, backend=backend, chunk_size=2)
    monkeypatch.setattr(Fragile, "broken", [True])
    with pytest.raises(ZeroDivisionError, match="by nothing") as failure:
        run.advance()
    assert failure.value.__notes__ == ["in round 1, at client a"]


def test_an_unknown_backend_or_setting_is_refused_with_the_nearest_name():
    data, task = arrays({"a": 6}), ragged().task
    with pytest.raises(RequestError, match='"vectorised"; did you mean "vectorized"'):
        motet.run(motet.FedAvg(), task, data, rounds=1, backend="vectorised")
    for backend in ("serial", "vectorized"):
        with pytest.raises(RequestError, match='no setting "chunksize"; did you mean "chunk_size"'):
            motet.run(motet.FedAvg(), task, data, rounds=1, backend=backend, chunksize=2)


def test_a_client_too_unlike_the_network_fails_before_the_first_round():
    with pytest.raises(motet.errors.StructureError, match=r'client "a", shape \(2, 4\)'):
        start(motet.FedAvg(), Task(build=lambda: nn.Linear(7, 3)), arrays({"a": 6}), rounds=1)
