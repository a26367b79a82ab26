"""IFCA and FedEM: banks of models."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import motet
from motet import FedAvg, Key, Sgd
from motet.methods._bases.bank import Grouped, GroupMean
from motet.methods._fedem import FedEM, mean_over, responsibilities
from motet.methods._ifca import IFCA
from motet.testing._worlds import TinyNet, quadratic, ragged

BOTH = pytest.mark.parametrize("backend", ["serial", "vectorized"])


def run(method, world, backend="serial", rounds=1, **more):
    return motet.run(method, world.task, world.data, rounds=rounds, backend=backend, **more)


def opposite_groups(clients=6, size=40):
    """Half of the clients call left what the others call right."""

    def draw(number, split):
        rng = Key(0).fold("groups", number, split).numpy()
        x = rng.normal(size=(size, 4)).astype(np.float32)
        side = (x[:, 0] > 0).astype(np.int64)
        return x, side if number % 2 == 0 else 1 - side

    def everybody(split):
        return {f"c{number}": draw(number, split) for number in range(clients)}

    return motet.data.from_arrays(everybody("train"), everybody("val"), everybody("test"))


@BOTH
@pytest.mark.parametrize("method", [IFCA, FedEM])
def test_a_bank_of_one_is_fedavg(backend, method):
    world = ragged()
    one, fedavg = run(method(models=1), world, backend, 2), run(FedAvg(), world, backend, 2)
    bank = {name: value[0] for name, value in one.server.items()}
    assert_close(bank, fedavg.server, rtol=0, atol=1e-6)


@BOTH
def test_ifca_finds_two_groups_that_contradict_each_other(backend):
    data, task = opposite_groups(), motet.Task(TinyNet)
    done = motet.run(
        IFCA(models=2, optimizer=Sgd(lr=0.5)), task, data, rounds=25, backend=backend, seed=3
    )
    fedavg = motet.run(FedAvg(optimizer=Sgd(lr=0.5)), task, data, rounds=25, seed=3)
    assert done.evaluate().mean > 0.9
    assert fedavg.evaluate().mean < 0.7
    served = [done.personal(client)["head.weight"] for client in data.clients]
    for number, weights in enumerate(served):
        assert_close(weights, served[number % 2])


def test_fedem_recovers_the_mixture_that_was_planted():
    data, task = opposite_groups(), motet.Task(TinyNet)
    method = FedEM(models=2, optimizer=Sgd(lr=0.5), batch_size=10)
    done = motet.run(method, task, data, rounds=30, seed=0)
    assert done.evaluate().mean > 0.85
    shares = torch.stack([done.clients[client]["shares"] for client in data.clients])
    leading = shares.argmax(1)
    assert (leading[0::2] == leading[0]).all()
    assert (leading[1::2] != leading[0]).all()


@BOTH
def test_a_model_that_nobody_joins_stays_as_it_was(backend):
    world = quadratic({"a": [1.0], "b": [1.2]})
    start = run(IFCA(models=2), world, backend, 0).server["w"]
    bank = torch.tensor([[1.0], [50.0]])
    run_from = motet._engine.federation.start(
        IFCA(models=2, batch_size=None, optimizer=Sgd(lr=0.1)),
        world.task,
        world.data,
        rounds=1,
        backend=backend,
    )
    run_from.server = {"w": bank}
    run_from.advance()
    assert start.shape == (2, 1)
    assert run_from.server["w"][1].item() == 50.0
    # Both took one step from 1 towards their targets.
    assert run_from.server["w"][0].item() == pytest.approx(1.0 - 0.1 * (0.0 + -0.2) / 2)


def test_the_choice_is_made_on_training_data():
    # Choosing by test loss leaks: the labels of the test split must not matter.
    world = ragged()
    data = world.data
    flipped = motet.data.from_arrays(
        train={c: data.examples(c, "train") for c in data.clients},
        val={c: data.examples(c, "val") for c in data.clients},
        test={
            c: (data.examples(c, "test").x, 2 - data.examples(c, "test").y) for c in data.clients
        },
        classes=3,
    )
    one, other = (motet.run(IFCA(), world.task, d, rounds=2) for d in (data, flipped))
    assert_close(one.server, other.server, rtol=0, atol=0)
    for client in data.clients:
        assert_close(one.personal(client), other.personal(client), rtol=0, atol=0)


def test_group_means_can_be_merged_in_parts():
    g = torch.Generator().manual_seed(0)
    values = {"w": torch.randn(5, 3, generator=g), "n": torch.tensor([3, 9, 4, 1, 5])}
    groups = torch.eye(3)[torch.tensor([0, 0, 1, 0, 1])]
    weights = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
    reduce = GroupMean()

    def lift(rows):
        chosen = Grouped({k: v[rows] for k, v in values.items()}, groups[rows])
        return reduce.lift([str(r) for r in rows], chosen, weights[rows])

    whole = reduce.finish(lift([0, 1, 2, 3, 4]))
    parts = reduce.finish(reduce.merge(lift([0, 1]), lift([2, 3, 4])))
    assert_close(whole, parts)
    expected = (1 * values["w"][0] + 2 * values["w"][1] + 4 * values["w"][3]) / 7
    assert_close(whole.value["w"][0], expected)
    assert whole.value["n"].tolist() == [9, 5, 0]
    assert whole.group.tolist() == [7.0, 8.0, 0.0]
    assert whole.value["w"][2].abs().max() == 0


def test_responsibilities_are_the_posterior():
    losses = torch.tensor([[0.0, 1.0], [0.0, 0.0]])
    q = responsibilities(losses, torch.tensor([0.25, 0.75]))
    assert_close(q[:, 0], torch.tensor([0.25, 0.75]))
    weight = 0.25 * np.exp(-1) / (0.25 * np.exp(-1) + 0.75)
    assert q[0, 1].item() == pytest.approx(weight, abs=1e-6)
    assert_close(mean_over(q, torch.tensor([1.0, 0.0])), q[:, 0])


@BOTH
def test_fedem_mixes_probabilities_not_scores(backend):
    world = ragged()
    done = run(FedEM(models=2), world, backend, 2)
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    bank, shares = done.personal("few")
    models = [{k: v[i] for k, v in bank.items()} for i in range(2)]
    expected = sum(s * world.task.predict(m, x) for s, m in zip(shares, models, strict=True))
    assert_close(done.predict("few", x), expected)
    assert_close(done.predict("few", x).sum(-1), torch.ones(3))


@BOTH
def test_the_weights_of_the_mixture_are_stored_and_sum_to_one(backend):
    world = ragged()
    done = run(FedEM(models=3), world, backend, 2)
    for client in world.data.clients:
        shares = done.clients[client]["shares"]
        assert shares.sum().item() == pytest.approx(1.0, abs=1e-5)
        assert (shares - 1 / 3).abs().max() > 1e-4


def test_one_step_of_fedem_weighs_each_model_by_its_responsibility():
    world = quadratic({"a": [1.0, 1.0]})
    method = FedEM(models=2, batch_size=None, optimizer=Sgd(lr=0.1))
    course = motet._engine.federation.start(
        method, world.task, world.data, rounds=1, backend="serial"
    )
    course.server = {"w": torch.tensor([[0.0], [3.0]])}
    course.advance()
    losses = np.array([0.5, 2.0])
    q = np.exp(-losses) / np.exp(-losses).sum()
    assert course.server["w"][0].item() == pytest.approx(0.0 - 0.1 * q[0] * (0.0 - 1.0), abs=1e-6)
    assert course.server["w"][1].item() == pytest.approx(3.0 - 0.1 * q[1] * (3.0 - 1.0), abs=1e-6)


@pytest.mark.parametrize("method", [IFCA, FedEM])
def test_one_model_is_announced_and_none_refused(method):
    assert "FedAvg" in run(method(models=1), ragged(), rounds=0).warnings[0]
    assert not run(method(), ragged(), rounds=0).warnings
    with pytest.raises(motet.errors.RequestError, match="1 or more"):
        method(models=0)
