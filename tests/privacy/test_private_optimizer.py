import math

import pytest
import torch
from torch import nn
from toys import arrays, assert_close

import motet
from motet._core import tree
from motet._core.keys import Key
from motet._training.batching import NO_EXAMPLE, Plan, batches, draw
from motet._training.fitting import fit
from motet._training.per_group import ByPart
from motet.errors import CapabilityError, RequestError
from motet.optim import Adam, Sgd
from motet.privacy._optimizer import Private
from motet.task import Batch, Loss, Task

IMAGE = (3, 8, 8)


def network():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)
    )


def examples(size=12, seed=0):
    rng = Key(seed).numpy()
    x = torch.from_numpy(rng.normal(size=(size, *IMAGE)).astype("float32"))
    return x, torch.from_numpy(rng.integers(0, 5, size))


def batch_of(x, y, weight=None, key=5):
    weight = torch.ones(len(y)) if weight is None else torch.tensor(weight)
    return Batch(x, y, weight, torch.tensor(key))


def gradient(optimizer, task, state, batch):
    def objective(params, seen):
        loss = task.loss(state | params, seen)
        return loss.value, loss.buffers

    return optimizer.gradient(objective, state, batch)[0]


@pytest.mark.filterwarnings("ignore")  # of Opacus, about hooks
@pytest.mark.parametrize("clip", [0.05, 0.7, 100.0])
def test_the_clipped_sum_is_that_of_opacus(clip):
    from opacus.grad_sample import GradSampleModule
    from opacus.optimizers import DPOptimizer

    task, (x, y) = Task(network), examples()
    state = task.init(Key(1))
    model = GradSampleModule(network())
    model._module.load_state_dict(state)
    theirs = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=1.0),
        noise_multiplier=0.0,
        max_grad_norm=clip,
        expected_batch_size=8,
    )
    nn.functional.cross_entropy(model(x), y).backward()
    theirs.pre_step()
    expected = {name: p.grad for name, p in model._module.named_parameters()}

    ours = gradient(Private(clip=clip, noise=0.0, batch_size=8), task, state, batch_of(x, y))
    assert_close(ours, expected, 1e-6)


def test_without_noise_and_bound_it_is_plain_sgd_over_the_expected_batch_size():
    task, (x, y) = Task(network), examples(size=6)
    state, batch = task.init(Key(1)), batch_of(x, y)
    mean = torch.func.grad(lambda s: task.loss(s, batch).value)(state)
    ours = gradient(Private(clip=math.inf, noise=0.0, batch_size=8), task, state, batch)
    assert_close(ours, tree.tree_map(lambda g: g * 6 / 8, mean), 1e-6)


def test_large_batches_are_taken_in_portions(monkeypatch):
    task, (x, y) = Task(network), examples(size=11)
    state, private = task.init(Key(1)), Private(clip=0.3, noise=0.5)
    whole = gradient(private, task, state, batch_of(x, y))
    monkeypatch.setattr("motet.privacy._optimizer.AT_ONCE", 4)
    assert_close(gradient(private, task, state, batch_of(x, y)), whole, 1e-6)


def test_padded_rows_contribute_nothing():
    task, (x, y) = Task(network), examples()
    state, private = task.init(Key(1)), Private(clip=0.3, noise=0.0)
    alone = gradient(private, task, state, batch_of(x[:5], y[:5]))
    padded = gradient(private, task, state, batch_of(x, y, [1.0] * 5 + [0.0] * 7))
    assert_close(padded, alone, 1e-7)


def test_padded_rows_do_not_bring_a_penalty_with_them():
    task, (x, y) = Task(network), examples(size=4)
    state = task.init(Key(1))

    def penalised(params, seen):
        return task.loss(params, seen).value + tree.squared_distance(
            params, tree.zeros_like(params)
        ), {}

    private = Private(clip=1e6, noise=0.0)
    padded = batch_of(x, y, [1.0, 1.0, 0.0, 0.0])
    ours = private.gradient(penalised, state, padded)[0]
    assert_close(ours, private.gradient(penalised, state, batch_of(x[:2], y[:2]))[0], 1e-6)


def test_an_example_without_a_finite_gradient_counts_as_none():
    task, (x, y) = Task(network), examples(size=4)
    state, private = task.init(Key(1)), Private(clip=0.3, noise=0.0)
    broken = x.clone()
    broken[3] = math.inf
    ours = gradient(private, task, state, batch_of(broken, y))
    assert_close(ours, gradient(private, task, state, batch_of(x[:3], y[:3])), 1e-7)


def test_the_noise_has_the_deviation_that_was_asked_for():
    task, (x, y) = Task(network), examples(size=4)
    state, batch = task.init(Key(1)), batch_of(x, y)
    noisy = gradient(Private(clip=0.5, noise=3.0, batch_size=10), task, state, batch)
    silent = gradient(Private(clip=0.5, noise=0.0, batch_size=10), task, state, batch)
    noise = torch.cat([g.flatten() for g in tree.subtract(noisy, silent).values()])
    expected = 3.0 * 0.5 / 10
    assert abs(noise.std() / expected - 1) < 4 / math.sqrt(2 * len(noise))
    assert abs(noise.mean()) < 4 * expected / math.sqrt(len(noise))


def test_every_step_has_noise_of_its_own():
    task, (x, y) = Task(network), examples(size=4)
    state, private = task.init(Key(1)), Private(clip=1e-9, noise=1e9)
    first, again, other = (
        torch.cat([g.flatten() for g in gradient(private, task, state, b).values()])
        for b in (batch_of(x, y), batch_of(x, y), batch_of(x, y, key=6))
    )
    assert torch.equal(first, again)
    assert abs(torch.corrcoef(torch.stack([first, other]))[0, 1]) < 0.15


def test_a_step_that_drew_nobody_is_noise_alone():
    task, (x, y) = Task(network), examples(size=3)
    state, private = task.init(Key(1)), Private(clip=1.0, noise=1.0)
    nobody = batch_of(x, y, [NO_EXAMPLE, 0.0, 0.0])
    only_padding = batch_of(x, y, [0.0, 0.0, 0.0])
    ours = gradient(private, task, state, nobody)
    assert_close(ours, gradient(private, task, state, only_padding), 0)
    assert all(g.abs().sum() > 0 for g in ours.values())


class FirstOutputs(nn.Module):
    """The loss below is linear in the weight, so that a gradient shows what dropout kept."""

    def __init__(self):
        super().__init__()
        self.dropout, self.layer = nn.Dropout(0.5), nn.Linear(64, 1, bias=False)

    def forward(self, x):
        return self.layer(self.dropout(x))


def test_examples_of_a_batch_lose_different_units():
    task = Task(FirstOutputs, loss=lambda outputs, y: outputs[:, 0], kind="values")
    state, x = task.init(Key(0)), torch.eye(2).repeat_interleave(32, 1)  # halves of the units
    private = Private(clip=1e6, noise=0.0, batch_size=1)
    kept = gradient(private, task, state, batch_of(x, torch.zeros(2)))["layer.weight"][0] > 0
    assert 0 < kept.sum() < 64
    assert not torch.equal(kept[:32], kept[32:])


def test_fit_steps_by_the_inner_optimizer_on_noisy_gradients():
    task, (x, y) = Task(network), examples()
    state = task.init(Key(1))
    order = draw(Plan(steps=3, batch_size=4), len(y), Key(2), Key(3))
    walked = batches(x, y, order, 1.0)
    private = Private(inner=Adam(lr=0.01), clip=math.inf, noise=0.0, batch_size=4)
    assert_close(fit(task, state, walked, private), fit(task, state, walked, Adam(lr=0.01)), 1e-5)


@pytest.mark.parametrize("options", [{}, {"mode": "loop"}, {"traced": False}, {"chunk_size": 2}])
def test_a_stack_of_clients_trains_as_one_client_after_another(options):
    data = arrays({"a": 5, "b": 20, "c": 33}, features=6)
    task = Task(lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)))
    method = motet.FedAvg(
        optimizer=Private(inner=Sgd(lr=0.2, momentum=0.5), clip=0.5, batch_size=8), batch_size=8
    )
    serial = motet.run(method, task, data, rounds=2, backend="serial")
    stacked = motet.run(method, task, data, rounds=2, backend="vectorized", **options)
    assert_close(stacked.server, serial.server, 1e-6)


def test_an_optimizer_by_parts_refuses_a_private_part():
    with pytest.raises(CapabilityError, match="cannot be a part"):
        ByPart(Sgd(), frozenset(), rest=Private())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"clip": 0.0}, "above 0"),
        ({"noise": -1.0}, "0 or more"),
        ({"clip": math.inf}, "bounds nothing"),
        ({"batch_size": 0}, "1 or more"),
        ({"sampling": "guess"}, "poisson"),
        ({"delta": 0.0}, "between 0 and 1"),
        ({"inner": Private()}, "private already"),
    ],
)
def test_values_that_mean_nothing_are_refused(wrong, message):
    with pytest.raises(RequestError, match=message):
        Private(**wrong)


def test_a_pass_cannot_smuggle_statistics_past_the_noise():
    def objective(params, seen):
        loss = Loss((params["w"] * seen.x).sum(), {"seen": seen.x.mean()})
        return loss.value, loss.buffers

    batch = batch_of(torch.ones(2, 1), torch.zeros(2))
    assert Private(noise=0.0).gradient(objective, {"w": torch.ones(1)}, batch)[1] == {}
