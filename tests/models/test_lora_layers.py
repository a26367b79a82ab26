"""Low-rank adapters on layers of all kinds: each works and merges, or is refused by name."""

from __future__ import annotations

import pytest
import torch
from test_lora import Dense, data_for, stirred
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

import motet
from motet import Key, Task
from motet.errors import CapabilityError, RequestError, StructureError, WorkError
from motet.models import merge_lora, with_conv_adapters, with_lora
from motet.models._efficientnet import SamePadding


class Pooled(nn.Module):
    """A layer whose outputs are averaged over places, and a head."""

    def __init__(self, make, width=4) -> None:
        super().__init__()
        self.layer, self.head = make(), nn.Linear(width, 3)

    def forward(self, x):
        return self.head(self.layer(x).tanh().flatten(2).mean(2))


class Tied(nn.Module):
    """Token vectors that are also the classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(9, 6), nn.Linear(6, 9, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, x):
        return self.out(self.embed(x).mean(1).tanh())


class Twice(nn.Module):
    """One layer with two names, called by keyword."""

    def __init__(self, kind=torch.float32) -> None:
        super().__init__()
        self.first = self.second = nn.Linear(5, 5).to(kind)
        self.head = nn.Linear(5, 3).to(kind)

    def forward(self, x):
        return self.head(self.second(input=self.first(x).tanh()))


class Doubling(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


class Counted(nn.Embedding):
    """Places of tokens, as OPT and BART count them: the input is not what is looked up."""

    def forward(self, x):
        return super().forward(torch.arange(x.shape[1], device=x.device) + 2)


class Standardized(nn.Conv2d):
    """A convolution whose weight is standardized before use."""

    def forward(self, x):
        weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        return nn.functional.conv2d(x, weight, self.bias, self.stride, self.padding)


class Places(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.places, self.head = Counted(9, 6), nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.places(x).mean(0)).expand(len(x), -1)


def pooled(kind, **options):
    return lambda: Pooled(lambda: kind(2, 4, 3, **options))


def wrapped():
    return nn.Sequential(nn.Sequential(Dense()))


def with_both():
    return with_conv_adapters(pooled(nn.Conv2d), ["layer"])()


def floats(*shape):
    return torch.randn(3, *shape, generator=torch.Generator().manual_seed(1))


TOKENS = torch.arange(15).view(3, 5) % 9
WORK = {
    "time": (pooled(nn.Conv1d, bias=False), "layer", floats(2, 7)),
    "volume": (pooled(nn.Conv3d, dilation=2, padding=2, stride=2), "layer", floats(2, 5, 5, 5)),
    "grouped": (pooled(nn.Conv1d, groups=2), "layer", floats(2, 7)),
    "reflected": (
        pooled(nn.Conv2d, padding="same", padding_mode="reflect"), "layer", floats(2, 6, 6)
    ),
    "padded by itself": (
        lambda: Pooled(lambda: SamePadding(2, 4, 3, 2)), "layer", floats(2, 7, 7)
    ),
    "standardized": (pooled(Standardized), "layer", floats(2, 6, 6)),
    "scaled": (lambda: nn.Sequential(Doubling(5, 3)), "0", floats(5)),
    "counts by itself": (Places, "places", TOKENS),
    "behind another adapter": (with_both, "layer", floats(2, 6, 6)),
    "tied, looked up": (Tied, "embed", TOKENS),
    "tied, multiplied": (Tied, "out", TOKENS),
    "tied, both": (Tied, ("embed", "out"), TOKENS),
    "two names": (Twice, ("first", "second"), floats(5)),
    "its second name": (Twice, "second", floats(5)),
    "double precision": (lambda: Twice(torch.float64), "first", floats(5).double()),
    "wrapped": (wrapped, "*.first", floats(5)),
}  # fmt: skip


CONVOLUTIONS = {
    "1x1": (nn.Conv2d, {"kernel_size": 1}),
    "1x1 with strides": (nn.Conv2d, {"kernel_size": 1, "stride": 3}),
    "1x1, padded": (nn.Conv2d, {"kernel_size": 1, "padding": (0, 2)}),
    "uneven": (nn.Conv2d, {"kernel_size": (3, 2), "stride": (1, 2), "dilation": (2, 1)}),
    "replicated": (nn.Conv2d, {"kernel_size": 3, "padding": 1, "padding_mode": "replicate"}),
    "depthwise": (nn.Conv2d, {"kernel_size": 5, "padding": "same", "groups": 4}),
    "groups": (
        nn.Conv2d,
        {"kernel_size": 3, "stride": 2, "groups": 2, "padding": 1, "padding_mode": "circular"},
    ),
    "time": (nn.Conv1d, {"kernel_size": 3, "dilation": 3, "groups": 4}),
    "volume": (nn.Conv3d, {"kernel_size": 2, "stride": 2, "groups": 2}),
    "padded by itself": (SamePadding, {"kernel_size": 3, "stride": 2, "groups": 4}),
}


@pytest.mark.parametrize("case", list(WORK))
@pytest.mark.parametrize("rank", [1, 40])  # also more than the layer has
def test_an_adapter_starts_as_nothing_and_merges_to_the_same_outputs(case, rank):
    build, at, x = WORK[case]
    task, plain = Task(with_lora(build, at, rank=rank, alpha=3)), Task(build)
    state = task.init(Key(0))
    network = task.network(state)
    before = plain.network(task.complete(state) | plain.init(Key(0)) | task.frozen)(x)
    torch.testing.assert_close(network(x), before)
    after = stirred(network)(x)
    assert not torch.allclose(after, before)
    merged = merge_lora(network)
    torch.testing.assert_close(merged(x), after, rtol=1e-4, atol=1e-4)
    assert merged.state_dict().keys() == build().state_dict().keys()


def normed():
    return Pooled(lambda: weight_norm(nn.Linear(5, 4)))


REFUSED = {
    "ConvTranspose2d": (pooled(nn.ConvTranspose2d), "convolution or embedding layers"),
    "Bilinear": (lambda: Pooled(lambda: nn.Bilinear(5, 5, 4)), "convolution or embedding layers"),
    "LSTM": (lambda: Pooled(lambda: nn.LSTM(5, 4)), "convolution or embedding layers"),
    "EmbeddingBag": (lambda: Pooled(lambda: nn.EmbeddingBag(9, 4)), "embedding layers"),
    "ParametrizedLinear": (normed, "computed from others"),
    "max_norm=": (lambda: Pooled(lambda: nn.Embedding(9, 4, max_norm=1.0)), "rewrites its weight"),
    "MultiheadAttention": (
        lambda: Pooled(lambda: nn.MultiheadAttention(4, 2)),
        "without calling them",
    ),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_a_layer_that_cannot_be_adapted_is_named_with_the_reason(name):
    build, reason = REFUSED[name]
    with pytest.raises(CapabilityError, match=reason) as refused:
        with_lora(build, "layer")()
    assert name in str(refused.value)


def test_networks_without_layers_inside_or_without_shapes_are_refused():
    with pytest.raises(CapabilityError, match=r"nn.Sequential\(layer\)"):
        with_lora(lambda: nn.Linear(5, 3), "*")()
    with pytest.raises(StructureError, match="lazy layer"):
        with_lora(lambda: nn.Sequential(nn.LazyLinear(3)), "0")()


@pytest.mark.parametrize("rank", [1, 3])
@pytest.mark.parametrize("case", list(CONVOLUTIONS))
def test_an_adapted_convolution_is_the_convolution_with_the_merged_weight(case, rank):
    kind, options = CONVOLUTIONS[case]
    network = stirred(with_lora(lambda: nn.Sequential(kind(4, 8, **options)), "0", rank=rank)())
    layer = network[0]
    x = floats(4, *[9] * len(layer.kernel_size)).requires_grad_()
    with torch.no_grad():
        product = (layer.lora_B @ layer.lora_A.flatten(1)).view(layer.weight.shape)
    dense = kind(4, 8, **options)
    dense.load_state_dict({"weight": layer.weight + product, "bias": layer.bias})
    torch.testing.assert_close(network(x), dense(x), rtol=1e-4, atol=1e-4)
    ours, theirs = (torch.autograd.grad(n(x).square().sum(), x)[0] for n in (network, dense))
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)
    assert isinstance(layer.weight, nn.Parameter)  # as it was


def test_a_layer_with_a_forward_of_its_own_gives_back_its_weight_when_it_fails():
    network = with_lora(lambda: nn.Sequential(Doubling(5, 3)), "0")()
    weight = network[0].weight
    with pytest.raises(RuntimeError, match="shapes"):
        network(floats(4))
    assert network[0].weight is weight
    with pytest.raises(CapabilityError, match="forward of its own"):
        with_lora(lambda: nn.Sequential(Doubling(5, 3)), "0", dropout=0.1)()


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"at": ()}, "names no layer"),
        *(({"rank": rank}, "whole number of 1 or more") for rank in (0, -1, 2.5, True, "4")),
        *(({"alpha": alpha}, "other than 0") for alpha in (0, float("nan"), "x", True)),
        *(({"dropout": rate}, "from 0 to below 1") for rate in (-0.1, 1, 1.5, "x")),
    ],
)
def test_wrong_numbers_are_refused_before_anything_is_built(wrong, sentence):
    with pytest.raises(RequestError, match=sentence):
        with_lora(Dense, **{"at": "first", **wrong})


def test_an_adapter_that_forward_never_calls_is_named():
    class Reads(Dense):
        def forward(self, x):
            return self.head(nn.functional.linear(x, self.first.weight, self.first.bias))

    task = Task(with_lora(Reads, "first", rank=2))
    with pytest.raises(WorkError, match=r"does not depend on first\.lora_A"):
        motet.run(motet.FedAvg(batch_size=4), task, data_for(Dense), rounds=1, backend="serial")
