"""FedAvg+: fine-tuning of the final model, at each client, when it is served."""

from __future__ import annotations

import pytest
import torch
from toys import arrays, assert_close, assert_same

import motet
from motet import FedAvg, FedAvgFT, Sgd
from motet._core import tree
from motet.testing import batch_norm, quadratic, ragged
from motet.testing._driving import predictions, states

TASK = ragged().task

pytestmark = pytest.mark.parametrize("backend", ["serial", "vectorized"])


def test_without_fine_tuning_it_is_fedavg(backend):
    data = arrays({"a": 6, "b": 4})
    tuned, plain = (
        motet.run(m, TASK, data, rounds=3, backend=backend)
        for m in (FedAvgFT(adapt_epochs=0), FedAvg())
    )
    assert_same(states(tuned), states(plain))
    assert_same(predictions(tuned), predictions(plain))


def test_training_is_fedavgs_whatever_the_fine_tuning(backend):
    data = arrays({"a": 6, "b": 4})
    tuned, plain = (
        motet.run(m(), TASK, data, rounds=3, backend=backend) for m in (FedAvgFT, FedAvg)
    )
    assert_same(states(tuned), states(plain))
    x = data.examples("a", "test").x
    assert_same(tuned.predict("a", x, "after_broadcast"), plain.predict("a", x))
    assert not torch.equal(tuned.predict("a", x), plain.predict("a", x))


def test_fine_tuning_on_quadratics_is_arithmetic(backend):
    world = quadratic({"a": [4.0], "b": [0.0]})
    method = FedAvgFT(optimizer=Sgd(lr=0.5), adapt_epochs=3, adapt_optimizer=Sgd(lr=0.25))
    run = motet.run(method, world.task, world.data, rounds=1, init={"w": [0.0]}, backend=backend)
    # The global model is 1 (a reaches 2, b stays at 0); each goes on from there.
    assert run.personal("a")["w"].item() == pytest.approx(4 + 0.75**3 * (1 - 4))
    assert run.personal("b")["w"].item() == pytest.approx(0.75**3)


def test_long_fine_tuning_reaches_what_local_training_would(backend):
    world = quadratic({"a": [4.0, 2.0], "b": [0.0]})
    method = FedAvgFT(optimizer=Sgd(lr=0.5), adapt_epochs=40, batch_size=None)
    run = motet.run(method, world.task, world.data, rounds=1, backend=backend)
    assert run.personal("a")["w"].item() == pytest.approx(3, abs=1e-5)


def test_a_new_client_is_tuned_like_an_old_one(backend):
    world = quadratic({"a": [4.0], "b": [0.0]})
    run = motet.run(
        FedAvgFT(optimizer=Sgd(lr=0.5), adapt_epochs=2),
        world.task,
        world.data,
        rounds=1,
        backend=backend,
    )
    assert_close(run.adapt([[0.0]], [4.0]).personal, run.personal("a"))


def test_serving_leaves_the_global_model_and_its_statistics_alone(backend):
    world = batch_norm()
    run = motet.run(FedAvgFT(), world.task, world.data, rounds=1, backend=backend)
    before = tree.clone(run.server)
    run.evaluate()
    personal = run.personal("few")
    assert_same(before, run.server)
    assert personal["body.1.num_batches_tracked"] == before["body.1.num_batches_tracked"] + 5


def test_nothing_is_kept_and_as_much_is_sent_as_by_fedavg(backend):
    data = arrays({"a": 6, "b": 4})
    (round_,) = motet.rounds(FedAvgFT(), TASK, data, rounds=1, backend=backend)
    assert round_.bytes_up == round_.bytes_down == 2 * tree.count_bytes(round_.server)
    assert round_.run.clients["a"] == {}
