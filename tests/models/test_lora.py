"""Laws of low-rank adapters in plain torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import motet
from motet import Key, Task
from motet._core import tree
from motet.data import from_arrays
from motet.errors import CapabilityError, RequestError, SelectorError, StructureError
from motet.models import lora_layers, merge_lora, with_lora
from motet.models._surgery.lora import lora_delta


class Words(nn.Module):
    """An embedding, a convolution over time and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(9, 6)
        self.conv = nn.Conv1d(6, 6, 3, padding=1, padding_mode="circular")
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.conv(self.embed(x).mT).tanh().mean(2))


class Images(nn.Module):
    """A convolution with strides, a depthwise one, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, stride=2, padding=1)
        self.depthwise = nn.Conv2d(4, 4, 3, padding=1, groups=4)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.depthwise(self.conv(x).tanh()).mean((2, 3)))


class Dense(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(5, 6), nn.Linear(6, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.second(self.first(x).tanh()).tanh())


INPUTS = {
    Words: lambda n, rng: rng.integers(0, 9, (n, 5)),
    Images: lambda n, rng: rng.normal(size=(n, 2, 6, 6)).astype(np.float32),
    Dense: lambda n, rng: rng.normal(size=(n, 5)).astype(np.float32),
}
AT = {Words: ("embed", "conv"), Images: ("conv", "depthwise"), Dense: ("first", "second")}


def data_for(kind, sizes=(9, 7, 4)):
    rng = Key(2).numpy()

    def rows(n):
        return INPUTS[kind](n, rng), rng.integers(0, 3, n)

    train = {f"c{i}": rows(n) for i, n in enumerate(sizes)}
    return from_arrays(train, test={c: rows(4) for c in train}, classes=3)


def inputs(kind):
    return torch.as_tensor(INPUTS[kind](4, Key(1).numpy()))


def stirred(network):
    """Give every adapter something to say."""
    draws = torch.Generator().manual_seed(0)
    for layer in lora_layers(network).values():
        for leaf in (layer.lora_A, layer.lora_B):
            leaf.data = torch.randn(leaf.shape, generator=draws).to(leaf.dtype)
    return network


@pytest.mark.parametrize("kind", list(INPUTS))
@pytest.mark.parametrize("exact", [False, True])
def test_a_new_adapter_changes_nothing_and_a_merged_one_computes_the_same(kind, exact):
    build = with_lora(kind, AT[kind], rank=2, alpha=3, train="head", exact=exact)
    x = inputs(kind)
    plain, network = (task.network(task.init(Key(0))) for task in (Task(kind), Task(build)))
    assert torch.equal(network(x), plain(x))
    stirred(network)
    for layer in lora_layers(network).values() if exact else ():
        layer.lora_residual.add_(0.1)
    merged = merge_lora(network)
    assert not torch.allclose(network(x), plain(x))
    torch.testing.assert_close(merged(x), network(x))
    assert merged.state_dict().keys() == plain.state_dict().keys()


@pytest.mark.parametrize("kind", list(INPUTS))
def test_only_adapters_and_what_is_named_are_trained(kind):
    task = Task(with_lora(kind, AT[kind], rank=2, train="head"))
    lora = {f"{at}.lora_{part}" for at in AT[kind] for part in "AB"}
    assert set(task.names) == lora | {"head.weight", "head.bias"}
    assert task.frozen.keys() == dict(kind().named_parameters()).keys() - set(task.names)
    assert task.select("lora") == lora
    assert task.select("lora_A") | task.select("lora_B") == lora
    assert task.select("lora_A").isdisjoint(task.select("lora_B"))


METHODS = {
    "fedavg": lambda _: motet.FedAvg(batch_size=4),
    "fedalt": lambda p: motet.FedAlt(personal=p, batch_size=4),
    "fedsim": lambda p: motet.FedSim(personal=p, batch_size=4),
    "fedper": lambda p: motet.FedPer(personal=p, batch_size=4),
    "fedrep": lambda p: motet.FedRep(personal=p, batch_size=4),
    "ditto": lambda _: motet.Ditto(batch_size=4),
    "fedfomo": lambda _: motet.FedFomo(batch_size=4),
    "knn-per": lambda _: motet.KNNPer(features="head", batch_size=4),
}


@pytest.mark.parametrize("kind", list(INPUTS))
@pytest.mark.parametrize("method", list(METHODS))
def test_adapters_are_personal_by_role_with_every_method(kind, method):
    task = Task(with_lora(kind, AT[kind], rank=2, train="head"))
    personal = ("lora_A", "lora_B", "lora", ("lora_B", "head"))[len(method) % 4]
    made = METHODS[method](personal)
    settings = {"rounds": 1, "trial": False, "seed": 1}
    serial = motet.run(made, task, data_for(kind), backend="serial", **settings)
    auto = motet.run(made, task, data_for(kind), measure=False, **settings)
    expected = dict(tree.flatten((serial.server, dict(serial.clients))))
    for path, leaf in tree.flatten((auto.server, dict(auto.clients))):
        torch.testing.assert_close(leaf, expected[path], rtol=1e-3, atol=1e-5)
    if method in ("fedalt", "fedsim", "fedper", "fedrep"):
        assert serial.server.keys() == set(task.names) - task.select(personal)


def test_the_exact_mean_is_the_mean_of_products_and_the_plain_one_is_not():
    build = with_lora(Dense, AT[Dense], rank=2, alpha=3, train="head", exact=True)
    task, data = Task(build), data_for(Dense)
    start = {
        name: 0.3 * torch.randn(leaf.shape, generator=torch.Generator().manual_seed(number))
        for number, (name, leaf) in enumerate(task.init(Key(0)).items())
        if "residual" not in name
    }

    def effective(reduce, rounds):
        method = motet.FedAvg(reduce=reduce, batch_size=4, optimizer=motet.Sgd(lr=0.3))
        run = motet.run(method, task, data, rounds=rounds, init=start, seed=1)
        layers = lora_layers(task.network(run.server))
        return run, {path: lora_delta(layer).detach() for path, layer in layers.items()}

    # The oracle: every client's own product, after it has trained by itself.
    alone = motet.run(
        motet.Local(batch_size=4, optimizer=motet.Sgd(lr=0.3)),
        task, data, rounds=1, init=start, seed=1,
    )  # fmt: skip
    sizes = {client: data.size(client, "train") for client in data.clients}
    mean = dict.fromkeys(AT[Dense], 0)
    for client, size in sizes.items():
        for path, layer in lora_layers(task.network(alone.personal(client))).items():
            mean[path] = mean[path] + size / sum(sizes.values()) * lora_delta(layer).detach()
    _, exact = effective(motet.ExactLora(), 1)
    _, inexact = effective(motet.Mean(), 1)
    for path, expected in mean.items():
        torch.testing.assert_close(exact[path], expected, rtol=1e-4, atol=1e-6)
        assert (inexact[path] - expected).abs().max() > 1e-4
    run, _ = effective(motet.ExactLora(), 3)
    assert all(bool(leaf.any()) for name, leaf in run.server.items() if "residual" in name)


def test_exact_and_plain_means_agree_where_all_clients_have_one_a():
    """With A the same for everybody, the mean of B times A is the mean of the products."""
    uploads = {
        "x.lora_A": torch.randn(1, 2, 5, generator=torch.Generator().manual_seed(0)).expand(
            3, 2, 5
        ),
        "x.lora_B": torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(1)),
        "x.lora_residual": torch.zeros(3, 4, 5),
    }
    reduce = motet.ExactLora()
    total = reduce.lift(["a", "b", "c"], uploads, torch.tensor([1.0, 2.0, 3.0]))
    found = reduce.finish(total, {"x.lora_residual": torch.zeros(4, 5)})
    torch.testing.assert_close(found["x.lora_residual"], torch.zeros(4, 5), rtol=0, atol=1e-6)


def test_exact_means_need_room_and_both_factors():
    for build, method in (
        (with_lora(Dense, "first", train="head"), motet.FedAvg(reduce=motet.ExactLora())),
        (
            with_lora(Dense, "first", train="head", exact=True),
            motet.FedPer(personal="lora_B", reduce=motet.ExactLora()),
        ),
    ):
        with pytest.raises(StructureError, match="exact=True"):
            motet.run(method, Task(build), data_for(Dense), rounds=1, backend="serial")


@pytest.mark.parametrize(
    ("at", "error", "sentence"),
    [
        ("secnd", SelectorError, 'did you mean "second"'),
        ("*", CapabilityError, "cannot have a low-rank adapter"),
    ],
)
def test_layers_that_cannot_be_adapted_are_named(at, error, sentence):
    network = Dense if at != "*" else lambda: nn.Sequential(nn.Tanh())
    with pytest.raises(error, match=sentence):
        with_lora(network, at)()


def test_layers_that_attention_reads_without_a_call_are_refused():
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(4, 2)

    with pytest.raises(CapabilityError, match="without calling"):
        with_lora(Attention, "out_proj")()


def test_a_layer_is_adapted_once_and_a_rank_counts_rows():
    with pytest.raises(RequestError, match="has an adapter already"):
        with_lora(with_lora(Dense, "first"), "first")()
    with pytest.raises(RequestError, match="1 or more"):
        with_lora(Dense, "first", rank=0)
    twice = with_lora(with_lora(Dense, "first", rank=1), "second", rank=3)()
    ranks = {path: layer.lora_A.shape[0] for path, layer in lora_layers(twice).items()}
    assert ranks == {"first": 1, "second": 3}
    assert all(p.requires_grad for n, p in twice.named_parameters() if "lora" in n)


def test_dropout_before_a_is_off_in_evaluation_and_the_same_on_every_backend():
    task = Task(with_lora(Dense, AT[Dense], rank=2, train="head", dropout=0.5))
    assert len(task.dropout_keys) == 2
    x, state = inputs(Dense), task.init(Key(0))
    assert torch.equal(task.outputs(state, x), task.outputs(state, x))
