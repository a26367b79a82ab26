"""FedAvg: closed forms, what it reduces to, and what becomes of normalisation layers."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from toys import arrays, assert_close, assert_same

import motet
from motet import Adam, FedAvg, Key, Mean, Sgd
from motet._core import tree
from motet._engine.federation import start
from motet.data import from_arrays
from motet.errors import RequestError
from motet.testing import batch_norm, quadratic, ragged
from motet.testing._worlds import TinyNet

TASK = ragged().task
BACKENDS = ["serial", "vectorized"]

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


def server_after(method, world, rounds, backend, **settings):
    return motet.run(
        method, world.task, world.data, rounds=rounds, backend=backend, **settings
    ).server


def pooled(data):
    """All clients' training data as one client's."""
    pairs = [data.examples(c, "train") for c in sorted(data.clients)]
    x, y = torch.cat([x for x, _ in pairs]), torch.cat([y for _, y in pairs])
    return from_arrays({"all": (x, y)}, classes=data.classes)


# -- closed forms -------------------------------------------------------------


def test_one_two_four_with_ten_twenty_seventy_is_three_point_three(backend):
    world = quadratic({"a": [1.0] * 10, "b": [2.0] * 20, "c": [4.0] * 70})
    arrived = FedAvg(
        optimizer=Sgd(lr=1.0), batch_size=None
    )  # one step of size 1 reaches the target
    assert server_after(arrived, world, 1, backend)["w"].item() == pytest.approx(3.3)


def test_local_steps_on_quadratics_shrink_geometrically(backend):
    world = quadratic({"a": [1.0, 3.0], "b": [8.0]})
    method = FedAvg(optimizer=Sgd(lr=0.25), epochs=3, batch_size=None)
    w, mean = 0.0, (2 * 2.0 + 8.0) / 3
    for _ in range(2):
        w = mean + (1 - 0.25) ** 3 * (w - mean)
    assert server_after(method, world, 2, backend)["w"].item() == pytest.approx(w)


def test_uniform_weights_forget_the_sizes(backend):
    world = quadratic({"a": [1.0] * 9, "b": [3.0]})
    method = FedAvg(optimizer=Sgd(lr=1.0), reduce=Mean(weights="uniform"))
    assert server_after(method, world, 1, backend)["w"].item() == pytest.approx(2)


def test_the_mean_is_over_the_cohort_and_its_weights_sum_to_one(backend):
    world = quadratic({"a": [1.0] * 3, "b": [1.0], "c": [1.0] * 5})
    method = FedAvg(optimizer=Sgd(lr=1.0))
    for seed in range(4):
        server = server_after(method, world, 1, backend, cohort=1, seed=seed)
        assert server["w"].item() == pytest.approx(1)


def test_counted_steps_are_steps_for_every_client(backend):
    world = quadratic({"a": [1.0] * 7, "b": [1.0]})
    method = FedAvg(optimizer=Sgd(lr=0.5), steps=3, batch_size=2)
    server = server_after(method, world, 1, backend, init={"w": [0.0]})
    assert server["w"].item() == pytest.approx(1 - 0.5**3)


# -- what it reduces to -------------------------------------------------------


@pytest.mark.parametrize(
    ("optimizer", "theirs"),
    [
        (Sgd(lr=0.1), lambda p: torch.optim.SGD(p, lr=0.1)),
        (
            Sgd(lr=0.05, momentum=0.9, weight_decay=0.01, nesterov=True, clip=0.5),
            lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01, nesterov=True),
        ),
        (Adam(lr=0.05), lambda p: torch.optim.Adam(p, lr=0.05)),
    ],
    ids=["sgd", "momentum", "adam"],
)
def test_one_client_is_plain_training_with_fresh_moments_every_round(backend, optimizer, theirs):
    data = arrays({"only": 9})
    method = FedAvg(optimizer=optimizer, epochs=2, batch_size=4)
    run = start(method, TASK, data, rounds=2, backend=backend)
    module = TinyNet()
    module.load_state_dict(run.server)
    for number in range(2):
        torch_optimizer = theirs(module.parameters())
        for batch in run.setting.data("only", method.plans(), number)["train"].steps():
            real = batch.weight > 0
            torch_optimizer.zero_grad()
            nn.functional.cross_entropy(module(batch.x[real]), batch.y[real]).backward()
            if getattr(optimizer, "clip", None):
                nn.utils.clip_grad_norm_(module.parameters(), optimizer.clip)
            torch_optimizer.step()
        run.advance()
    assert_close(run.server, dict(module.state_dict()), 5e-6)


def test_one_full_step_by_everybody_is_a_centralised_gradient_step(backend):
    data = arrays({"a": 3, "b": 8, "c": 1})
    method = FedAvg(batch_size=None, epochs=1)
    both = [motet.run(method, TASK, d, rounds=4, backend=backend) for d in (data, pooled(data))]
    assert_close(both[0].server, both[1].server)


def test_identical_data_everywhere_is_centralised_training(backend):
    x, y = arrays({"a": 6}).examples("a", "train")
    many = from_arrays(dict.fromkeys("abc", (x, y)), classes=3)
    method = FedAvg(batch_size=None, epochs=3, optimizer=Sgd(lr=0.2, momentum=0.9))
    one = from_arrays({"a": (x, y)}, classes=3)
    both = [motet.run(method, TASK, d, rounds=2, backend=backend) for d in (many, one)]
    assert_close(both[0].server, both[1].server)


def test_a_client_split_into_two_identical_halves_changes_nothing(backend):
    data = arrays({"a": 6, "b": 4})
    (x, y), other = data.examples("a", "train"), tuple(data.examples("b", "train"))
    whole = from_arrays({"a": (torch.cat([x, x]), torch.cat([y, y])), "b": other}, classes=3)
    halves = from_arrays({"a1": (x, y), "a2": (x, y), "b": other}, classes=3)
    method = FedAvg(batch_size=None, epochs=3)
    both = [motet.run(method, TASK, d, rounds=2, backend=backend) for d in (whole, halves)]
    assert_close(both[0].server, both[1].server)


def test_doubling_everybodys_data_changes_nothing(backend):
    data = arrays({"a": 6, "b": 4})
    pairs = {c: data.examples(c, "train") for c in "ab"}
    doubled = from_arrays(
        {c: (torch.cat([x, x]), torch.cat([y, y])) for c, (x, y) in pairs.items()}, classes=3
    )
    method = FedAvg(batch_size=None, epochs=3)
    both = [motet.run(method, TASK, d, rounds=2, backend=backend) for d in (data, doubled)]
    assert_close(both[0].server, both[1].server)


def test_everybody_is_served_the_same_model(backend):
    data = arrays({"a": 6, "b": 4})
    run = motet.run(FedAvg(), TASK, data, rounds=1, backend=backend)
    assert run.clients["a"] == {}
    assert_same(run.personal("a"), run.server)
    assert_same(run.personal("a"), run.personal("b"))


# -- the server's own optimizer -----------------------------------------------


def test_a_server_step_of_one_is_the_mean_itself(backend):
    data = arrays({"a": 6, "b": 4})
    plain, stepped = (
        motet.run(FedAvg(server_optimizer=o), TASK, data, rounds=3, backend=backend)
        for o in (None, Sgd(lr=1.0))
    )
    assert_close(plain.server, stepped.server, 1e-6)


def test_server_momentum_on_quadratics_is_arithmetic(backend):
    world = quadratic({"a": [1.0], "b": [3.0]})
    method = FedAvg(optimizer=Sgd(lr=0.5), server_optimizer=Sgd(lr=1.0, momentum=0.9))
    w, velocity = 0.0, 0.0
    for _ in range(3):
        velocity = 0.9 * velocity + 0.5 * (w - 2.0)  # the mean change, as a gradient
        w -= velocity
    server = server_after(method, world, 3, backend, init={"w": [0.0]})
    assert server["w"].item() == pytest.approx(w)


def test_server_moments_are_kept_over_rounds_and_never_sent(backend):
    data = arrays({"a": 6, "b": 4})
    run = start(FedAvg(server_optimizer=Adam(lr=0.01)), TASK, data, rounds=2, backend=backend)
    size = tree.count_bytes(TASK.init(Key(0)))
    for number in (1, 2):
        assert run.advance().bytes_down == 2 * size
        assert run.server["moments/taken"].item() == number
    assert set(run.personal("a")) == set(TASK.names)


# -- normalisation layers -----------------------------------------------------


AFFINE = {"body.1.weight", "body.1.bias"}
STATISTICS = {"body.1.running_mean", "body.1.running_var", "body.1.num_batches_tracked"}


@pytest.mark.parametrize(
    ("norm", "kept"),
    [("average", set()), ("local_stats", STATISTICS), ("local_layers", AFFINE | STATISTICS)],
)
def test_a_norm_policy_says_what_the_server_has_and_what_a_client_keeps(backend, norm, kept):
    world = batch_norm()
    run = motet.run(FedAvg(norm=norm), world.task, world.data, rounds=1, backend=backend)
    assert set(run.clients["few"]) == kept
    assert set(run.server) == set(world.task.names) - kept
    assert set(run.personal("few")) == set(world.task.names)


def test_averaged_statistics_are_weighted_floats_and_the_largest_counter(backend):
    task, data = batch_norm().task, arrays({"a": 12, "b": 4})
    method = FedAvg(norm="average", batch_size=4)
    alone = {c: motet.run(method, task, data.select([c]), rounds=1).server for c in "ab"}
    together = motet.run(method, task, data, rounds=1, backend=backend).server
    mean = 0.75 * alone["a"]["body.1.running_var"] + 0.25 * alone["b"]["body.1.running_var"]
    torch.testing.assert_close(together["body.1.running_var"], mean)
    assert alone["b"]["body.1.num_batches_tracked"].item() == 1
    assert together["body.1.num_batches_tracked"].item() == 3
    assert together["body.1.num_batches_tracked"].dtype == torch.int64


@pytest.mark.parametrize("norm", ["local_stats", "local_layers"])
def test_local_statistics_are_the_clients_own_from_its_first_batch_on(backend, norm):
    task, data = batch_norm().task, arrays({"a": 12, "b": 4})
    run = motet.run(
        FedAvg(norm=norm, batch_size=4), task, data, rounds=2, cohort=1, backend=backend
    )
    counters = {c: run.clients[c]["body.1.num_batches_tracked"].item() for c in "ab"}
    taken = {
        c: sum(c in r.cohort for r in motet.rounds(FedAvg(), task, data, rounds=2, cohort=1))
        for c in "ab"
    }
    assert counters == {"a": 3 * taken["a"], "b": taken["b"]}


def test_a_client_with_one_example_keeps_batch_norm_finite_and_its_statistics(backend):
    task, data = batch_norm().task, arrays({"one": 1})
    run = start(FedAvg(epochs=5, optimizer=Sgd(lr=1.0)), task, data, rounds=3, backend=backend)
    initial = tree.clone(run.server)
    for _ in range(3):
        run.advance()
    assert all(leaf.isfinite().all() for leaf in run.server.values())
    assert_same(tree.pick(run.server, STATISTICS), tree.pick(initial, STATISTICS))
    assert not torch.equal(run.server["head.weight"], initial["head.weight"])


@pytest.mark.parametrize("norm", [nn.GroupNorm(1, 5), nn.LayerNorm(5)])
def test_norms_without_statistics_are_averaged_or_kept_as_a_whole(backend, norm):
    task, data = motet.Task(build=lambda: TinyNet(norm)), arrays({"a": 6, "b": 4})
    shared, own = (
        motet.run(FedAvg(norm=policy), task, data, rounds=1, backend=backend)
        for policy in ("local_stats", "local_layers")
    )
    assert shared.clients["a"] == {}
    assert set(own.clients["a"]) == AFFINE


def test_an_unknown_policy_is_refused_with_the_known_ones(backend):
    with pytest.raises(RequestError, match="average, local_stats, local_layers; got 'mean'"):
        FedAvg(norm="mean")


def test_epochs_and_steps_together_are_refused(backend):
    with pytest.raises(RequestError, match="give epochs= or steps=, not both"):
        FedAvg(epochs=1, steps=1)
