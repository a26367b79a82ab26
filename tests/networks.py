"""Networks of every kind, tiny: the reference ones with their options, and modules of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import orthogonal, spectral_norm, weight_norm

from motet import models
from motet.data import Federation, from_arrays

CLASSES = 3
VECTOR, SEQUENCE, SIGNAL, IMAGE, VOLUME, TOKENS = (
    (4,),
    (3, 4),
    (2, 6),
    (2, 6, 6),
    (1, 4, 4, 4),
    (5,),
)


class Network(NamedTuple):
    """How to make a network, and what it reads."""

    build: Callable[[], nn.Module]
    shape: tuple[int, ...] = VECTOR
    tokens: bool = False
    labels: str = "last"  # or "every": one label per token


class Net(nn.Module):
    """A body of any kind, and a head."""

    def __init__(self, body: nn.Module, width: int, classes: int = CLASSES) -> None:
        super().__init__()
        self.body, self.head = body, nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


class Last(nn.Module):
    """The last output of a recurrent layer."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0][:, -1]


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x)[0].mean(1)


class Branching(nn.Module):
    """Decides by the value of a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(4, 5), nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.left(x)
        return hidden.tanh() if hidden.sum() > 0 else (hidden + self.right(x)).relu()


class Masking(nn.Module):
    """Makes tensors whose size depends on values."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.layer(x)
        bonus = hidden[hidden > 0].sum() / hidden.numel()
        return hidden.tanh() + bonus


class Repeating(nn.Module):
    """Runs until a condition holds, at most so often."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(4):
            x = self.layer(x).tanh()
            if float(x.detach().abs().max()) < 0.5:
                break
        return x


class Tied(nn.Module):
    """Uses one matrix twice."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
        self.up.weight = self.down.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.up(self.down(x).tanh())


class Einsum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Parameter(torch.randn(3, 4, 5) / 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("btf,tfh->bh", x, self.mix)


class Viewing(nn.Module):
    """Flattens with `view`, which needs a certain layout in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        return x.view(x.size(0), -1).tanh()


class OwnBatchNorm(nn.Module):
    """Normalises over the batch, unknown to anybody."""

    def forward(self, x: Tensor) -> Tensor:
        return (x - x.mean(0)) / (x.var(0, unbiased=False) + 0.1).sqrt()


class Casting(nn.Module):
    """Computes in double precision inside of a network of single precision."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).double().exp().log1p().float()


class TwoKinds(nn.Module):
    """Has parameters of two precisions."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 5), nn.Linear(5, 5).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).double()).float()


class Counting(nn.Module):
    """Keeps a buffer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 5)
        self.register_buffer("seen", torch.zeros(5))
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.layer(x)
        if self.training:
            self.calls += 1
            self.seen.mul_(0.9).add_(hidden.detach().mean(0), alpha=0.1)
        return (hidden - self.seen).tanh()


class ByIndex(nn.Module):
    """Picks and sorts, pads and rolls."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.pad(x.sort(-1).values.roll(1, -1), (1, 1))
        return self.layer(x).topk(5, dim=-1).values


class FunctionalDropout(nn.Module):
    """Draws from torch's own generator."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(self.layer(x), 0.5, self.training)


class Clamping(nn.Module):
    """Changes a weight in `forward`, though at first no value is outside of the bounds."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        self.layer.weight.data.clamp_(-9, 9)
        return self.layer(x)


class Renormalising(nn.Module):
    """Changes a weight in `forward`, only while it trains."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            with torch.no_grad():
                self.layer.weight.div_(self.layer.weight.norm(dim=1, keepdim=True))
        return self.layer(x)


class Unregistered(nn.Module):
    """Keeps a layer where `parameters()` does not look."""

    def __init__(self, keep: Callable[[nn.Module], object]) -> None:
        super().__init__()
        self.kept = keep(nn.Linear(4, 5))

    def forward(self, x: Tensor) -> Tensor:
        (layer,) = self.kept.values() if isinstance(self.kept, dict) else self.kept
        return layer(x).tanh()


class Closing(nn.Module):
    """Calls its layer through a function that keeps the module it was made in."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 5)
        self.call = lambda x: self.layer(x).tanh()

    def forward(self, x: Tensor) -> Tensor:
        return self.call(x)


def frozen(layer: nn.Module) -> nn.Module:
    for parameter in layer.parameters():
        parameter.requires_grad_(False)
    return layer


def _dense(*between: nn.Module, bias: bool = True) -> Network:
    body = nn.Sequential
    return Network(lambda: Net(body(nn.Linear(4, 5, bias=bias), *map(_again, between)), 5))


def _again(module: nn.Module) -> nn.Module:
    import copy

    return copy.deepcopy(module)


def _conv(*between: nn.Module, bias: bool = True) -> Network:
    def build() -> nn.Module:
        layers = [nn.Conv2d(2, 4, 3, bias=bias), *map(_again, between), nn.ReLU()]
        return Net(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()), 4)

    return Network(build, IMAGE)


def _layers(*layers: Callable[[], nn.Module], width: int, shape: tuple[int, ...]) -> Network:
    return Network(lambda: Net(nn.Sequential(*(make() for make in layers)), width), shape)


def _reference(name: str, shape: tuple[int, ...], **options: object) -> Network:
    tokens = name in ("char-lstm", "word-lstm", "transformer")
    labels = "every" if tokens and options.get("predict") != "last" else "last"
    build = lambda: models.build(name, shape=shape, classes=CLASSES, **options)  # noqa: E731
    return Network(build, shape, tokens, labels)


REFERENCE = {
    "logistic": _reference("logistic", VECTOR),
    "mlp": _reference("mlp", VECTOR, hidden=[4]),
    "mlp deep": _reference("mlp", VECTOR, hidden=[4, 3]),
    "mcmahan-cnn": _reference("mcmahan-cnn", (1, 4, 4), hidden=4),
    "fomo-cnn": _reference("fomo-cnn", (1, 18, 18)),
    "emnist-cnn": _reference("emnist-cnn", (1, 6, 6)),
    "emnist-cnn dropout": _reference("emnist-cnn", (1, 6, 6), dropout=(0.25, 0.5)),
    "small-cnn": _reference("small-cnn", (1, 4, 4)),
    "sensor-cnn": _reference("sensor-cnn", (12, 2)),
    "resnet-18": _reference("resnet-18", (1, 6, 6), width=2),
    "resnet-18 imagenet": _reference("resnet-18", (1, 16, 16), width=2, stem="imagenet"),
    "resnet-18 adapters": _reference("resnet-18", (1, 4, 4), width=2, adapters=True),
    "resnet-18 batch": _reference("resnet-18", (1, 8, 8), width=2, norm="batch"),
    "resnet-34": _reference("resnet-34", (1, 4, 4), width=2),
    "mobilenet-v1": _reference("mobilenet-v1", (1, 8, 8), width=0.05),
    "mobilenet-v1 group": _reference("mobilenet-v1", (1, 8, 8), width=0.05, norm="group"),
    "mobilenet-v2": _reference("mobilenet-v2", (1, 8, 8), width=0.05),
    "mobilenet-v2 group": _reference(
        "mobilenet-v2", (1, 8, 8), width=0.05, norm="group", dropout=0.2
    ),
    "mobilenet-v2 imagenet": _reference("mobilenet-v2", (1, 16, 16), width=0.05, stem="imagenet"),
    "vgg-11": _reference("vgg-11", (1, 32, 32), width=2, hidden=4),
    "vgg-11 group": _reference("vgg-11", (1, 32, 32), width=2, hidden=4, norm="group", dropout=0.3),
    "vgg-11 batch": _reference("vgg-11", (1, 32, 32), width=2, hidden=4, norm="batch"),
    "char-lstm": _reference("char-lstm", TOKENS, hidden=3, embedding=2),
    "char-lstm last": _reference(
        "char-lstm", TOKENS, hidden=3, embedding=2, layers=1, predict="last"
    ),
    "word-lstm": _reference("word-lstm", TOKENS, hidden=3, embedding=2),
    "word-lstm last": _reference("word-lstm", TOKENS, hidden=3, embedding=2, predict="last"),
    "transformer": _reference("transformer", TOKENS, layers=1, heads=2, width=4, feedforward=4),
    "transformer untied": _reference(
        "transformer",
        TOKENS,
        layers=1,
        heads=2,
        width=4,
        feedforward=4,
        tied=False,
        bias=False,
        adapters=2,
        predict="last",
    ),
}

FOREIGN = {
    "lstm": Network(lambda: Net(Last(nn.LSTM(4, 5, batch_first=True)), 5), SEQUENCE),
    "lstm deep": Network(
        lambda: Net(Last(nn.LSTM(4, 3, 2, batch_first=True, bidirectional=True)), 6), SEQUENCE
    ),
    "lstm dropout": Network(
        lambda: Net(Last(nn.LSTM(4, 3, 2, batch_first=True, dropout=0.3)), 3), SEQUENCE
    ),
    "gru": Network(lambda: Net(Last(nn.GRU(4, 5, batch_first=True)), 5), SEQUENCE),
    "rnn": Network(lambda: Net(Last(nn.RNN(4, 5, batch_first=True)), 5), SEQUENCE),
    "encoder layer": _layers(
        lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True),
        nn.Flatten,
        width=12,
        shape=SEQUENCE,
    ),
    "encoder layer dropout": _layers(
        lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.2, batch_first=True),
        nn.Flatten,
        width=12,
        shape=SEQUENCE,
    ),
    "attention": Network(lambda: Net(Attention(), 4), SEQUENCE),
    "embedding bag": Network(lambda: Net(nn.EmbeddingBag(CLASSES, 4), 4), TOKENS, tokens=True),
    "batch norm": _dense(nn.BatchNorm1d(5), nn.Tanh(), bias=False),
    "batch norm slow": _dense(nn.BatchNorm1d(5, momentum=0.01, affine=False), bias=False),
    "batch norm without memory": _dense(
        nn.BatchNorm1d(5, track_running_stats=False), nn.Tanh(), bias=False
    ),
    "batch norm 2d": _conv(nn.BatchNorm2d(4), bias=False),
    "own batch norm": _dense(OwnBatchNorm(), nn.Tanh()),
    "group norm": _conv(nn.GroupNorm(2, 4)),
    "instance norm": _conv(nn.InstanceNorm2d(4, affine=True)),
    "instance norm with memory": _conv(nn.InstanceNorm2d(4, track_running_stats=True)),
    "layer norm": _dense(nn.LayerNorm(5), nn.GELU()),
    "rms norm": _dense(nn.RMSNorm(5), nn.SiLU()),
    "local response": _conv(nn.LocalResponseNorm(2)),
    "weight norm": _layers(lambda: weight_norm(nn.Linear(4, 5)), nn.Tanh, width=5, shape=VECTOR),
    "spectral norm": _layers(
        lambda: spectral_norm(nn.Linear(4, 5)), nn.Tanh, width=5, shape=VECTOR
    ),
    "orthogonal": _layers(lambda: orthogonal(nn.Linear(4, 4)), width=4, shape=VECTOR),
    "in place": _dense(nn.ReLU(inplace=True), nn.Hardtanh(inplace=True)),
    "prelu": _dense(nn.PReLU(5)),
    "dropout": _dense(nn.Dropout(0.3), nn.Tanh()),
    "channel dropout": _conv(nn.Dropout2d(0.3)),
    "branching": Network(lambda: Net(Branching(), 5)),
    "masking": Network(lambda: Net(Masking(), 5)),
    "repeating": Network(lambda: Net(Repeating(), 4)),
    "tied": Network(lambda: Net(Tied(), 4)),
    "frozen": _layers(
        lambda: frozen(nn.Linear(4, 5)), nn.Tanh, lambda: nn.Linear(5, 4), width=4, shape=VECTOR
    ),
    "bilinear": Network(lambda: Net(_Bilinear(), 5)),
    "einsum": Network(lambda: Net(Einsum(), 5), SEQUENCE),
    "viewing": Network(lambda: Net(Viewing(), 48), IMAGE),
    "casting": Network(lambda: Net(Casting(), 5)),
    "two kinds": Network(lambda: Net(TwoKinds(), 5)),
    "double": Network(lambda: Net(nn.Sequential(nn.Linear(4, 5), nn.Tanh()), 5).double()),
    "counting": Network(lambda: Net(Counting(), 5)),
    "by index": Network(lambda: Net(ByIndex(), 5)),
    "conv 1d": _layers(lambda: nn.Conv1d(2, 3, 3), nn.Tanh, nn.Flatten, width=12, shape=SIGNAL),
    "conv 3d": _layers(lambda: nn.Conv3d(1, 2, 3), nn.Tanh, nn.Flatten, width=16, shape=VOLUME),
    "conv transpose": _layers(
        lambda: nn.ConvTranspose2d(2, 2, 2), nn.Tanh, nn.Flatten, width=98, shape=IMAGE
    ),
    "depthwise": _layers(
        lambda: nn.Conv2d(2, 4, 3, groups=2, padding="same", padding_mode="circular"),
        lambda: nn.MaxPool2d(2),
        nn.Flatten,
        width=36,
        shape=IMAGE,
    ),
    "pixel shuffle": _layers(
        lambda: nn.Conv2d(2, 4, 3),
        lambda: nn.PixelShuffle(2),
        lambda: nn.Upsample(scale_factor=2),
        lambda: nn.LPPool2d(2, 4),
        nn.Flatten,
        width=16,
        shape=IMAGE,
    ),
    "unfold": _layers(
        lambda: nn.Unfold(3), nn.Flatten, lambda: nn.Linear(288, 4), width=4, shape=IMAGE
    ),
    "one layer": Network(lambda: nn.Linear(4, CLASSES)),
}

REFUSED = {
    "functional dropout": Network(lambda: Net(FunctionalDropout(), 5)),
    "batch norm by counting": Network(
        lambda: Net(nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5, momentum=None)), 5)
    ),
    "max norm": Network(
        lambda: Net(nn.Sequential(nn.Embedding(CLASSES, 4, max_norm=9), nn.Flatten()), 20),
        TOKENS,
        tokens=True,
    ),
    "clamping": Network(lambda: Net(Clamping(), 5)),
    "renormalising": Network(lambda: Net(Renormalising(), 5)),
    "layers in a list": Network(lambda: Net(Unregistered(lambda layer: [layer]), 5)),
    "layers in a dict": Network(lambda: Net(Unregistered(lambda layer: {"one": layer}), 5)),
    "closing": Network(lambda: Net(Closing(), 5)),
}


class _Bilinear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Bilinear(4, 4, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x, x.flip(-1)).tanh()


NETWORKS = REFERENCE | FOREIGN | REFUSED
SIZES = {"few": 3, "many": 6, "one": 1}


def data_for(network: Network) -> Federation:
    """Make unequal clients whose examples fit the network."""
    rng = np.random.default_rng(7)

    def draw(size: int) -> tuple[np.ndarray, np.ndarray]:
        x = rng.normal(size=(size, *network.shape)).astype("float32")
        if network.tokens:
            x = rng.integers(0, CLASSES, (size, *network.shape))
        labels = (size, *network.shape) if network.labels == "every" else size
        return x, rng.integers(0, CLASSES, labels)

    splits = [{client: draw(size) for client, size in SIZES.items()} for _ in range(3)]
    return from_arrays(*splits, classes=CLASSES)
