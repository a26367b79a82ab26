"""A network with adapters on a frozen base, by name: for configs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

from torch import nn

from motet._core.own_code import import_named
from motet._core.selectors import Selector, select
from motet.errors import RequestError
from motet.models._registry import build
from motet.models._surgery.adapters import with_conv_adapters
from motet.models._surgery.lora import can_have_lora, with_lora

Kind = Literal["lora", "conv"]


def adapted(
    shape: Sequence[int],
    classes: int | None,
    *,
    of: str,
    kind: Kind = "lora",
    at: str | Sequence[str] = (),
    rank: int = 8,
    alpha: float | None = None,
    train: Selector = "head",
    **options: Any,
) -> nn.Module:
    """Make a network whose weights are frozen, with adapters that are trained.

    In a config it is `name = "motet.models:adapted"`, with these arguments as keys of [model];
    `base` names the file of the frozen weights.

    Args:
        shape: The shape of one example.
        classes: Number of classes; None: a regression.
        of: Name of a reference network, such as "mobilenet-v2", or "module:function" of a network
            of your own: a function of `shape=`, `classes=` and the options.
        kind: "lora" adds low-rank products to weights; "conv" adds convolutions of 1 x 1 behind
            modules.
        at: Names or patterns of the adapted modules. By default, for "lora" every linear and
            convolution layer that `train` does not name, for "conv" every convolution.
        rank: Of "lora".
        alpha: Of "lora"; see `with_lora`.
        train: What else is trained.
        options: Of the network.

    Returns:
        The network.

    Raises:
        RequestError: An argument is wrong, or `at` names nothing that can be adapted.

    Example:
        >>> network = adapted((1, 8, 8), 10, of="mlp", rank=2, hidden=[16])
        >>> [name for name, p in network.named_parameters() if p.requires_grad]
        ['body.0.lora_A', 'body.0.lora_B', 'head.weight', 'head.bias']
    """
    if kind not in ("lora", "conv"):
        raise RequestError(f'kind= is "lora" or "conv"; got {kind!r}.')
    make = _imported(of) if ":" in of else partial(build, of)
    plain = partial(make, shape=shape, classes=classes, **options)
    where = ((at,) if isinstance(at, str) else tuple(at)) or _places(plain(), kind, train)
    if kind == "lora":
        return with_lora(plain, where, rank=rank, alpha=alpha, train=train)()
    network = with_conv_adapters(plain, where)()
    trained = select(network, train)
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(name in trained or ".adapter." in name)
    return network


def _imported(of: str) -> Callable[..., nn.Module]:
    try:
        found = import_named(of)
    except Exception as reason:  # the module is the user's: it may do anything
        raise RequestError(
            f'of="{of}" cannot be imported: {reason}. Check the spelling, and that the module is '
            "installed or in this directory."
        ) from reason
    if not callable(found):
        raise RequestError(
            f'of="{of}" is a {type(found).__name__}; a function of shape= and classes= that makes '
            "a network was expected."
        )
    made: Callable[..., nn.Module] = found
    return made


def _places(network: nn.Module, kind: Kind, train: Selector) -> tuple[str, ...]:
    trained = select(network, train)
    modules = dict(network.named_modules())
    fit = [
        path
        for path, module in modules.items()
        if (can_have_lora(modules, path) if kind == "lora" else isinstance(module, nn.Conv2d))
        and f"{path}.weight" not in trained
    ]
    if not fit:
        raise RequestError(
            f'{type(network).__name__} has no layer for kind="{kind}" besides {train!r}; '
            "name some with at=."
        )
    return tuple(fit)
