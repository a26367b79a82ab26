"""`mean_loss`: the mean over examples, for one client and for a stack, in either mode."""

import pytest
import torch
from torch import nn
from torch.func import vmap
from torch.testing import assert_close

from motet import Key, Task
from motet._core import tree
from motet._engine.backends.stacking import stack_padded
from motet._training.batching import Plan, batches, draw
from motet._training.execution import Execution, executing
from motet._training.fitting import mean_loss

NET = Task(
    lambda: nn.Sequential(nn.Conv1d(1, 3, 3), nn.BatchNorm1d(3), nn.Flatten(), nn.Linear(9, 4))
)
SIZES = (7, 1, 12, 0)


@pytest.fixture(params=["stack", "loop"])
def mode(request):
    with executing(Execution(mode=request.param)):
        yield request.param


def walk(size, batch_size=3):
    generator = torch.Generator().manual_seed(size)
    x = torch.randn(size, 1, 5, generator=generator)
    y = torch.randint(0, 4, (size,), generator=generator)
    return batches(x, y, draw(Plan(batch_size=batch_size), size, Key(0), Key(0)), 1.0)


def test_it_is_the_mean_over_examples_however_they_are_batched():
    state, data = NET.init(Key(0)), walk(7)
    expected = nn.functional.cross_entropy(NET.outputs(state, data.x), data.y)
    assert_close(mean_loss(NET, state, data), expected)
    assert_close(mean_loss(NET, state, walk(7, batch_size=None)), expected)


def test_without_examples_it_is_0():
    assert mean_loss(NET, NET.init(Key(0)), walk(0)) == 0


def test_a_stack_of_clients_gives_what_single_clients_give(mode):
    states = [NET.init(Key(i)) for i in range(4)]
    data = [walk(size) for size in SIZES]
    stacked = stack_padded([{"val": d} for d in data])["val"]
    many = vmap(lambda s, d: mean_loss(NET, s, d))(tree.stack(states), stacked)
    assert_close(
        many, torch.stack([mean_loss(NET, s, d) for s, d in zip(states, data, strict=True)])
    )


def test_one_model_for_many_clients_need_not_be_copied(mode):
    state, data = NET.init(Key(0)), [walk(size) for size in SIZES]
    stacked = stack_padded([{"val": d} for d in data])["val"]
    many = vmap(lambda d: mean_loss(NET, state, d))(stacked)
    assert_close(many, torch.stack([mean_loss(NET, state, d) for d in data]))


def test_statistics_stay_untouched():
    state = NET.init(Key(0))
    before = tree.clone(state)
    mean_loss(NET, state, walk(7))
    assert all(torch.equal(before[name], state[name]) for name in state)


def test_a_traced_loss_is_the_same_and_traced_once_for_all_clients():
    task = Task(NET.build)
    states, data = [task.init(Key(i)) for i in range(4)], [walk(size) for size in SIZES]
    stacked = stack_padded([{"val": d} for d in data])["val"]
    with executing(Execution(mode="loop", traced=True, widths=frozenset({3}))):
        came = vmap(lambda s, d: mean_loss(task, s, d))(tree.stack(states), stacked)
    assert len(task.programs) == 1
    assert_close(
        came, torch.stack([mean_loss(NET, s, d) for s, d in zip(states, data, strict=True)])
    )


def test_a_loss_of_batches_in_other_sizes_is_not_traced():
    task = Task(NET.build)
    with executing(Execution(mode="loop", traced=True, widths=frozenset({4}))):
        mean_loss(task, task.init(Key(0)), walk(7))
    assert len(task.programs) == 0
