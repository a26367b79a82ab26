"""Dropout from keys: the same units on every backend."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.func import functional_call, vmap
from toys import arrays, assert_close, assert_same

import motet
from motet import Key, Task
from motet._core.dropout import KeyedDropout, uniform, use_keyed_dropout
from motet.errors import CapabilityError
from motet.task import Batch
from motet.testing import dropout, ragged


def dropped(layer, x, key):
    return functional_call(layer.train(), {"key": torch.tensor(key)}, (x,))


@pytest.mark.parametrize("p", [0.0, 0.2, 0.5, 0.9])
def test_the_rate_is_right_and_the_mean_is_kept(p):
    out = dropped(KeyedDropout(p), torch.ones(400, 250), 12345)
    assert (out == 0).double().mean().item() == pytest.approx(p, abs=0.006)
    assert out.mean().item() == pytest.approx(1, abs=0.02)
    torch.testing.assert_close(out[out > 0], torch.full_like(out[out > 0], 1 / (1 - p)))


def test_everything_is_dropped_at_one():
    assert dropped(KeyedDropout(1.0), torch.ones(3, 3), 1).sum() == 0


def test_units_are_dropped_independently():
    keep = (dropped(KeyedDropout(0.5), torch.ones(300, 300), 7) > 0).double()
    for shifted in (keep[:, 1:], keep[1:, :]):
        same = keep[: shifted.shape[0], : shifted.shape[1]]
        together = (same * shifted).mean().item()
        assert together == pytest.approx(0.25, abs=0.01)


def test_steps_layers_and_clients_drop_different_units():
    keys = [Key(0).fold(i).integer(62) for i in range(5)] + [1, 2, 3]
    masks = [dropped(KeyedDropout(0.5), torch.ones(40, 40), key) > 0 for key in keys]
    for i, a in enumerate(masks):
        for b in masks[:i]:
            assert (a == b).double().mean().item() == pytest.approx(0.5, abs=0.06)


def test_numbers_are_uniform():
    drawn = uniform(torch.tensor(99), torch.Size([100_000]))
    assert drawn.min() >= 0
    assert drawn.max() < 1
    counts = torch.histc(drawn, bins=20, min=0, max=1)
    assert (counts - 5000).abs().max() < 350


def test_channelwise_dropout_drops_whole_channels():
    net = nn.Sequential(nn.Dropout2d(0.5))
    keys = use_keyed_dropout(net)
    assert keys == ["0.key"]
    out = functional_call(net, {"0.key": torch.tensor(5)}, (torch.ones(8, 6, 3, 3),))
    per_channel = out.flatten(2)
    assert (per_channel == per_channel[..., :1]).all()
    assert 0 < (per_channel[..., 0] == 0).double().mean() < 1


def test_no_two_layers_and_steps_of_a_network_drop_the_same_units():
    task = Task(build=lambda: nn.Sequential(*[nn.Dropout(0.5) for _ in range(4)]))
    masks = [
        uniform(key, torch.Size([200])) < 0.5
        for step in range(4)
        for key in task._layer_keys(torch.tensor(1000 + step)).values()
    ]
    agreement = [(a == b).double().mean().item() for i, a in enumerate(masks) for b in masks[:i]]
    assert len(agreement) == 16 * 15 / 2
    assert min(agreement) > 0.3
    assert max(agreement) < 0.7


def test_evaluation_drops_nothing():
    task = dropout().task
    state, x = task.init(Key(0)), torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(task.outputs(state, x), ragged().task.outputs(state, x))


def test_a_padded_batch_drops_the_same_units_of_the_real_rows():
    x = torch.ones(3, 4)
    short = dropped(KeyedDropout(0.5), x, 11)
    long = dropped(KeyedDropout(0.5), torch.cat([x, torch.zeros(2, 4)]), 11)
    assert torch.equal(long[:3], short)


def test_a_stack_drops_what_each_client_drops():
    layer, x, keys = KeyedDropout(0.5).train(), torch.ones(4, 6), torch.tensor([3, 99, 2**40])
    stacked = vmap(lambda key: functional_call(layer, {"key": key}, (x,)))(keys)
    for i, key in enumerate(keys.tolist()):
        assert torch.equal(stacked[i], dropped(layer, x, key))


def test_the_same_batch_and_key_give_the_same_loss_and_another_key_another():
    task = dropout().task
    state, x, y = task.init(Key(0)), torch.ones(4, 4), torch.tensor([0, 1, 2, 0])

    def loss(key):
        return task.loss(state, Batch(x, y, torch.ones(4), torch.tensor(key))).value.item()

    assert loss(1) == loss(1)
    assert loss(1) != loss(2)


def test_backends_chunks_and_listing_orders_drop_the_same_units():
    task, data = dropout().task, arrays({"a": 9, "b": 5, "c": 20})
    method = motet.FedAvg(epochs=2, batch_size=4)
    backwards = data.select(["c", "b", "a"])
    runs = [
        motet.run(method, task, data, rounds=2, backend="serial"),
        motet.run(method, task, data, rounds=2, backend="vectorized"),
        motet.run(method, task, data, rounds=2, backend="vectorized", chunk_size=1),
        motet.run(method, task, backwards, rounds=2, backend="serial"),
    ]
    for run in runs[1:3]:
        assert_close(run.server, runs[0].server, 1e-6)
    assert_same(runs[3].server, runs[0].server)


class Functional(nn.Module):
    """Drops units behind the library's back."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(nn.functional.dropout(x, 0.5, self.training))


@pytest.mark.parametrize(
    "build", [Functional, lambda: nn.Sequential(nn.Linear(4, 3), nn.AlphaDropout())]
)
def test_randomness_behind_the_librarys_back_is_refused_before_round_one(build):
    before = torch.get_rng_state()
    with pytest.raises(CapabilityError, match=r"torch's own generator.*nn\.Dropout"):
        motet.run(motet.FedAvg(), Task(build=build), arrays({"a": 4}), rounds=1)
    assert torch.equal(before, torch.get_rng_state())
