"""Per-FedAvg: a model that is good after one step."""

import pytest
import torch
from torch import nn
from torch.func import grad
from torch.testing import assert_close

import motet
from motet import FedAvg, Key, Mean, Sgd
from motet.methods._per_fedavg import MetaLoss, PerFedAvg, thirds
from motet.task import Batch
from motet.testing._worlds import TinyNet, quadratic, ragged

BOTH = pytest.mark.parametrize("backend", ["serial", "vectorized"])


def run(method, world, backend="serial", rounds=1, **more):
    return motet.run(method, world.task, world.data, rounds=rounds, backend=backend, **more)


def a_batch(rows, features=4, seed=0):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, features, generator=g, dtype=torch.float64)
    y = torch.randint(0, 3, (rows,), generator=g)
    return Batch(x, y, torch.ones(rows, dtype=torch.float64), torch.tensor(0))


def meta_gradient(variant, delta=1e-3, inner_lr=0.3):
    task = motet.Task(lambda: TinyNet().double())
    loss = MetaLoss(task, variant, inner_lr, delta)
    return grad(lambda p: loss(p, a_batch(12)).value)(task.init(Key(0)))


@BOTH
@pytest.mark.parametrize("variant", ["fo", "hf", "exact"])
def test_one_step_on_a_quadratic_is_the_arithmetic(backend, variant):
    world = quadratic({"a": [2.0, 2.0, 2.0]})
    method = PerFedAvg(variant=variant, inner_lr=0.25, optimizer=Sgd(lr=0.1), batch_size=None)
    done = run(method, world, backend, init={"w": [1.0]})
    adapted = 1.0 - 0.25 * (1.0 - 2.0)
    slope = adapted - 2.0
    # On (w - a)^2 / 2 the second derivative is 1: exact and hf multiply the slope by 1 - alpha.
    slope *= 1.0 if variant == "fo" else 1 - 0.25
    assert done.server["w"].item() == pytest.approx(1.0 - 0.1 * slope, abs=1e-5)


def test_the_finite_difference_approaches_the_exact_gradient_quadratically():
    exact = meta_gradient("exact")
    # Exact uses D twice where hf draws D'' for the curvature, so compare on equal thirds.
    batch = a_batch(4)
    same = Batch(*(v.repeat_interleave(3, 0) for v in batch[:3]), batch.key)
    task = motet.Task(lambda: TinyNet().double())

    def gradient(variant, delta):
        loss = MetaLoss(task, variant, 0.3, delta)
        return grad(lambda p: loss(p, same).value)(task.init(Key(0)))

    truth = gradient("exact", 0.0)
    far, near = (
        max(float((gradient("hf", d)[k] - truth[k]).abs().max()) for k in truth)
        for d in (1e-1, 1e-2)
    )
    assert near < far / 50
    assert near < 1e-5
    assert exact.keys() == truth.keys()


def test_first_order_differs_from_exact_where_there_is_curvature():
    first, exact = meta_gradient("fo"), meta_gradient("exact")
    assert max(float((first[k] - exact[k]).abs().max()) for k in exact) > 1e-3


@BOTH
@pytest.mark.parametrize("variant", ["fo", "exact"])
def test_without_an_inner_step_it_is_fedavg_on_the_outer_batches(backend, variant):
    world = quadratic({"a": [1.0, 1.0, 1.0], "b": [5.0, 5.0, 5.0]})
    method = PerFedAvg(variant=variant, inner_lr=0.0, optimizer=Sgd(lr=0.1), batch_size=None)
    fedavg = FedAvg(optimizer=Sgd(lr=0.1), batch_size=None, reduce=Mean(weights="uniform"))
    one, other = (run(m, world, backend, 3) for m in (method, fedavg))
    assert_close(one.server, other.server, rtol=0, atol=1e-6)


def test_the_three_parts_of_a_batch_are_disjoint_and_cover_it():
    parts = thirds(a_batch(10))
    rows = torch.cat([part.x for part in parts])
    assert_close(rows.sort(0).values, a_batch(10).x.sort(0).values)


def test_a_part_without_examples_borrows_the_first_ones():
    batch = a_batch(6)
    lonely = batch._replace(weight=torch.tensor([1.0, 0, 0, 0, 0, 0], dtype=torch.float64))
    for part in thirds(lonely):
        assert part.weight.sum() == 1
        assert_close(part.x[0], batch.x[0])
    for part in thirds(a_batch(1)):
        assert_close(part.x, a_batch(1).x)


def test_serving_takes_one_step_on_the_clients_training_data_only():
    # Adapting on test batches is a known mistake: the test labels must not matter.
    world = quadratic({"a": [2.0, 2.0, 2.0]})
    method = PerFedAvg(inner_lr=0.5, optimizer=Sgd(lr=0.0), batch_size=None)
    done = run(method, world, init={"w": [0.0]})
    assert done.predict("a", torch.zeros(1, 1)).item() == pytest.approx(0.5 * 2.0, abs=1e-6)
    before = done.evaluate(split="train", point="after_broadcast")["a"].value
    assert before == pytest.approx(2.0)


def test_every_variant_trains_a_client_with_fewer_examples_than_a_batch():
    world = ragged()
    for variant in ("fo", "hf", "exact"):
        done = run(PerFedAvg(variant=variant, batch_size=48), world, rounds=1, cohort=1.0)
        start = run(PerFedAvg(variant=variant), world, rounds=0)
        assert (done.server["head.weight"] - start.server["head.weight"]).abs().max() > 1e-4


def test_an_unknown_variant_is_refused_and_a_neutral_step_announced():
    with pytest.raises(motet.errors.RequestError, match="exact"):
        PerFedAvg(variant="second")
    assert run(PerFedAvg(inner_lr=0.0), ragged(), rounds=0).warnings


class Frozen(nn.Module):
    """Statistics must follow the forward passes of training."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.norm(x))


def test_batch_statistics_move_in_training():
    world = ragged()
    task = motet.Task(Frozen)
    done = motet.run(PerFedAvg(variant="fo"), task, world.data, rounds=1)
    assert done.server["norm.num_batches_tracked"] > 0
