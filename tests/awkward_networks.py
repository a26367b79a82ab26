"""Networks that a stack, a trace or a copy could get wrong, and networks that must be refused."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from networks import CLASSES, IMAGE, SEQUENCE, TOKENS, VECTOR, Last, Net, Network
from torch import Tensor, nn
from torch.nn.utils import parametrize, prune

Forward = Callable[[Any, Tensor], Tensor]


def made(
    forward: Forward,
    width: int = 5,
    shape: tuple[int, ...] = VECTOR,
    *,
    tokens: bool = False,
    **parts: Callable[[], object],
) -> Network:
    """Make a body of some parts, attributes or layers, with this forward, below a head."""

    class Body(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, part in parts.items():
                setattr(self, name, part())

        def forward(self, x: Tensor) -> Tensor:
            return forward(self, x)

    return Network(lambda: Net(Body(), width), shape, tokens)


def dense() -> nn.Module:
    return nn.Linear(4, 5)


class ThroughNumpy(torch.autograd.Function):
    """Computes where torch sees nothing of it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return torch.from_numpy(np.tanh(x.detach().numpy()))

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return slope * (1 - x.tanh() ** 2)


class Symmetric(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return weight.triu() + weight.triu(1).T


def symmetric() -> nn.Module:
    layer = nn.Linear(4, 4)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    return layer


def pruned() -> nn.Module:
    layer = dense()
    prune.l1_unstructured(layer, "weight", 0.5)  # type: ignore[no-untyped-call]
    return layer


def legacy_norm() -> nn.Module:
    with warnings.catch_warnings():  # torch has a newer one
        warnings.simplefilter("ignore")
        return nn.utils.weight_norm(dense())  # type: ignore[no-untyped-call]


def _twice(drop: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), drop, nn.Linear(5, 5), drop)


def _by_values(body: Any, x: Tensor) -> Tensor:
    return body.layer(x) * float(np.abs(x.detach().numpy()).mean())


def _by_list(body: Any, x: Tensor) -> Tensor:
    found = torch.tensor([float(len(set(row))) for row in x.tolist()])
    return body.table(x).mean(1) * found[:, None]


ACCEPTED = {
    "as strided": made(
        lambda body, x: body.layer(x).as_strided((len(x), 48), (48, 1)),
        48,
        IMAGE,
        layer=lambda: nn.Conv2d(2, 3, 3),
    ),
    "scaled by frequency": made(
        lambda body, x: body.table(x).mean(1),
        4,
        TOKENS,
        tokens=True,
        table=lambda: nn.Embedding(CLASSES, 4, scale_grad_by_freq=True),
    ),
    "through numpy": made(lambda body, x: ThroughNumpy.apply(body.layer(x)), layer=dense),
    "by values": made(_by_values, layer=dense),
    "by a list": made(_by_list, 4, TOKENS, tokens=True, table=lambda: nn.Embedding(CLASSES, 4)),
    "pruned": made(lambda body, x: body.layer(x).tanh(), layer=pruned),
    "legacy weight norm": made(lambda body, x: body.layer(x).tanh(), layer=legacy_norm),
    "one dropout in two places": made(
        lambda body, x: body.layers(x), layers=lambda: _twice(nn.Dropout(0.3))
    ),
    "mean over the batch": made(lambda body, x: body.layer(x) - body.layer(x).mean(0), layer=dense),
    "last state kept for looks": made(
        lambda body, x: setattr(body, "seen", body.layer(x)) or body.seen.tanh(), layer=dense
    ),
}


def _counting(body: Any, x: Tensor) -> Tensor:
    body.count += 1
    return body.layer(x) / body.count


def _remembering(body: Any, x: Tensor) -> Tensor:
    body.mean = 0.9 * body.mean + 0.1 * body.layer(x).detach().mean()
    return body.layer(x) - body.mean


def _remembering_for_later(body: Any, x: Tensor) -> Tensor:
    hidden = body.layer(x)
    if body.training:
        body.mean = hidden.detach().mean(0)
        return hidden
    return hidden - body.mean


def _changing_a_constant(body: Any, x: Tensor) -> Tensor:
    body.constants.mean += body.layer(x).detach().mean()
    return body.layer(x) - body.constants.mean


def _cached(body: Any, x: Tensor) -> Tensor:
    with parametrize.cached():
        return body.layer(body.layer(x))


def _assigning(body: Any, x: Tensor) -> Tensor:
    body.layer.weight.data = body.layer.weight.data * 0.9
    return body.layer(x)


def _writing_through_numpy(body: Any, x: Tensor) -> Tensor:
    body.layer.weight.detach().numpy()[0] = 1
    return body.layer(x)


def _keeping_a_product(body: Any, x: Tensor) -> Tensor:
    if body.product is None:
        body.product = 2 * body.layer.weight.detach().T
    return body.layer(x) + x @ body.product


def _constant() -> nn.Module:
    part = nn.Module()
    part.register_buffer("mean", torch.zeros(()), persistent=False)
    return part


class TwoInputs(nn.Linear):
    def forward(self, x: Tensor, mask: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x * mask)


class Choosing(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return F.one_hot(super().forward(x).argmax(-1), CLASSES)


def _of_layer(forward: Forward, **parts: Callable[[], object]) -> Network:
    return made(forward, layer=dense, **parts)


_layer: Forward = lambda body, x: body.layer(x)  # noqa: E731

# Each with words of the sentence that refuses it.
REFUSALS: dict[str, tuple[Network, str]] = {
    "counting in Python": (_of_layer(_counting, count=lambda: 0), "register_buffer"),
    "remembering": (_of_layer(_remembering, mean=lambda: torch.zeros(())), "register_buffer"),
    "remembering for evaluation": (
        _of_layer(_remembering_for_later, mean=lambda: torch.zeros(5)),
        "register_buffer",
    ),
    "keeping a product": (
        _of_layer(_keeping_a_product, product=lambda: None),
        "remembers or draws something outside of its state",
    ),
    "changing a constant": (
        _of_layer(_changing_a_constant, constants=_constant),
        "not with persistent=False",
    ),
    "own generator": (
        _of_layer(
            lambda body, x: body.layer(x) + float(body.rng.normal()),
            rng=lambda: np.random.default_rng(0),
        ),
        "not by a generator of your own",
    ),
    "cached": (made(_cached, 4, layer=symmetric), r"weight = self\.layer\.weight"),
    "data assigned": (_of_layer(_assigning), '"body.layer.weight" .* Compute a new tensor'),
    "written through numpy": (_of_layer(_writing_through_numpy), "Compute a new tensor"),
    "input changed": (_of_layer(lambda body, x: body.layer(x.add_(1))), r"x = x \+ 1"),
    "first layer in place": (
        made(
            lambda body, x: body.layers(x),
            layers=lambda: nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 5)),
        ),
        "no inplace=True",
    ),
    "lock": (_of_layer(_layer, lock=threading.Lock), '"body.lock" .* Keep locks'),
    "plain tensor": (
        _of_layer(
            lambda body, x: body.layer(x) * body.scale,
            scale=lambda: torch.ones(5, requires_grad=True),
        ),
        "wrap a tensor of your own in nn.Parameter",
    ),
    "script": (
        Network(lambda: torch.jit.script(nn.Linear(4, CLASSES))),
        "TorchScript module. Return the nn.Module",
    ),
    "data parallel": (
        Network(lambda: nn.DataParallel(nn.Linear(4, CLASSES))),
        "DataParallel. Leave the wrapper out",
    ),
    "two inputs": (Network(lambda: TwoInputs(4, CLASSES)), "it asks for x, mask"),
    "no parameters": (Network(nn.Identity), "has no parameters"),
    "classes as outputs": (
        Network(lambda: Choosing(4, CLASSES)),
        "real numbers, got torch.int64",
    ),
    "recurrent dropout": (
        Network(lambda: Net(Last(nn.LSTM(4, 3, 2, batch_first=True, dropout=0.3)), 3), SEQUENCE),
        'leave dropout=0.3 out of "body.layer", an nn.LSTM, and put nn.Dropout',
    ),
    "alpha dropout": (
        Network(lambda: nn.Sequential(nn.Linear(4, CLASSES), nn.AlphaDropout(0.2))),
        'nn.Dropout in place of "1", an nn.AlphaDropout',
    ),
}


AWKWARD = ACCEPTED | {name: network for name, (network, _) in REFUSALS.items()}
