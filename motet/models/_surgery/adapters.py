"""Adapters and dropout, put into any network by module name.

Each function takes what makes a network and returns what makes the same network with more in it, so
the result goes straight into a `Task`. Nothing that was there is renamed or drawn differently: a
checkpoint of the plain network fits, and equal seeds give equal weights.

Pillutla et al., "Federated Learning with Partial Model Personalization", ICML 2022.
https://arxiv.org/abs/2204.03809
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, TypeAlias

from torch import Tensor, nn

from motet.errors import CapabilityError, RequestError, SelectorError, nearest
from motet.models._adapters import BottleneckAdapter, ConvAdapter, adapter_paths
from motet.models._layers import Norm

__all__ = [
    "BottleneckAdapter",
    "ConvAdapter",
    "adapter_paths",
    "with_bottleneck_adapters",
    "with_conv_adapters",
    "with_dropout",
]

Build: TypeAlias = Callable[[], nn.Module]
MakeAdapter: TypeAlias = Callable[[nn.Module, str], nn.Module]
IMAGES, VECTORS = ("out_channels",), ("out_features", "embed_dim")  # where layers tell their sizes


def with_conv_adapters(
    build: Build,
    after: Sequence[str],
    *,
    channels: int | None = None,
    norm: Norm = "group",
    dropout: float = 0.0,
) -> Build:
    """Put x + conv1x1(dropout(norm(x))) behind modules whose outputs are images.

    Args:
        build: Makes the network.
        after: Dotted paths of modules, their last parts ("conv1") or patterns ("stage1.*.conv?");
            `after=("stage1.0.conv1",)` adds "stage1.0.conv1.adapter".
        channels: Channels of those outputs; read off the module's last convolution if None.
        norm: Normalisation inside the adapter, "group" or "batch".
        dropout: Rate of dropout inside the adapter.

    Returns:
        A function that makes the network with adapters, for a `Task`.

    Raises:
        SelectorError: The network has no such module.
        RequestError: The channels of its output are not known.

    Example:
        >>> import torch
        >>> make = with_conv_adapters(lambda: torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3)), ["0"])
        >>> make()(torch.ones(2, 1, 8, 8)).shape
        torch.Size([2, 4, 6, 6])
    """
    make = partial(_conv_adapter, channels=channels, norm=norm, dropout=dropout)
    return partial(_with_adapters, build, _paths(after), make, IMAGES)


def with_bottleneck_adapters(
    build: Build,
    after: Sequence[str],
    *,
    size: int = 16,
    width: int | None = None,
    dropout: float = 0.0,
) -> Build:
    """Put x + up(relu(down(dropout(x)))) behind modules whose outputs are vectors.

    Args:
        build: Makes the network.
        after: Dotted paths of modules, their last parts or patterns: in a transformer, usually
            attention and feed-forward network of each layer ("layers.*.attention").
        size: Width of the bottleneck; 16 and 64 in the paper.
        width: Width of those outputs; read off the module's last layer if None.
        dropout: Rate of dropout inside the adapter.

    Returns:
        A function that makes the network with adapters, for a `Task`.

    Raises:
        SelectorError: The network has no such module.
        RequestError: The width of its output is not known.

    Example:
        >>> import torch
        >>> layers = lambda: torch.nn.Sequential(torch.nn.Linear(3, 4))
        >>> make = with_bottleneck_adapters(layers, ["0"])
        >>> make()(torch.ones(2, 3)).shape
        torch.Size([2, 4])
    """
    make = partial(_bottleneck_adapter, width=width, size=size, dropout=dropout)
    return partial(_with_adapters, build, _paths(after), make, VECTORS)


def with_dropout(build: Build, before: Sequence[str], *, rate: float) -> Build:
    """Drop inputs of modules in training: before the first module, or before the classifier.

    Dropout has no parameters, so it adds nothing to a state.

    Args:
        build: Makes the network.
        before: Dotted paths of modules, their last parts ("head") or patterns.
        rate: Share of the inputs that are dropped.

    Returns:
        A function that makes the network with dropout, for a `Task`.

    Raises:
        SelectorError: The network has no such module.

    Example:
        >>> import torch
        >>> make = with_dropout(lambda: torch.nn.Sequential(torch.nn.Linear(3, 4)), ["0"], rate=0.5)
        >>> make().eval()(torch.ones(2, 3)).shape
        torch.Size([2, 4])
    """
    return partial(_with_dropout, build, _paths(before), rate)


def _with_adapters(
    build: Build, patterns: Sequence[str], make: MakeAdapter, sizes: Sequence[str]
) -> nn.Module:
    network = build()
    for path, layer in _chosen(network, patterns, sizes):
        adapter, last = make(layer, path), _last_called(layer)
        _attach(last, path, "adapter", adapter)
        last.register_forward_hook(_through_adapter)
    return network


def _with_dropout(build: Build, patterns: Sequence[str], rate: float) -> nn.Module:
    network = build()
    for path, layer in _chosen(network, patterns):
        _attach(layer, path, "input_dropout", nn.Dropout(rate))
        layer.register_forward_pre_hook(_through_dropout)
    return network


# The hooks find what they call through the module they are given, so a copy of the network calls
# its own.
def _through_adapter(layer: nn.Module, _: Any, outputs: Any) -> Any:
    adapter = layer.get_submodule("adapter")
    if isinstance(outputs, tuple):  # attention and recurrent layers return more than the output
        return (adapter(outputs[0]), *outputs[1:])
    return adapter(outputs)


def _through_dropout(layer: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (layer.get_submodule("input_dropout")(inputs[0]), *inputs[1:])


def _conv_adapter(
    layer: nn.Module, path: str, *, channels: int | None, norm: Norm, dropout: float
) -> nn.Module:
    channels = channels or _last_size(layer, path, "channels", IMAGES)
    return ConvAdapter(channels, norm=norm, dropout=dropout)


def _bottleneck_adapter(
    layer: nn.Module, path: str, *, width: int | None, size: int, dropout: float
) -> nn.Module:
    width = width or _last_size(layer, path, "width", VECTORS)
    return BottleneckAdapter(width, size, dropout=dropout)


def _last_size(layer: nn.Module, path: str, option: str, attributes: Sequence[str]) -> int:
    """Find the output size of a module from its last layer that has one."""
    for inner in reversed(list(layer.modules())):
        for attribute in attributes:
            if isinstance(getattr(inner, attribute, None), int):
                return int(getattr(inner, attribute))
    raise RequestError(
        f'"{path}", a {type(layer).__name__}, does not tell the size of its outputs. '
        f"Give {option}=."
    )


def _paths(paths: Sequence[str]) -> tuple[str, ...]:
    return (paths,) if isinstance(paths, str) else tuple(paths)


def _chosen(
    network: nn.Module, patterns: Sequence[str], sizes: Sequence[str] = ()
) -> list[tuple[str, nn.Module]]:
    """Find the modules that names or patterns mean."""
    modules = {path: module for path, module in network.named_modules() if path}
    found = [path for pattern in patterns for path in _meant(modules, pattern, sizes)]
    return [(path, modules[path]) for path in found]


def _meant(modules: dict[str, nn.Module], pattern: str, sizes: Sequence[str]) -> list[str]:
    exact = [pattern] if pattern in modules else []  # a whole name means that module alone
    found = exact or [path for path in modules if _matches(path, pattern)]
    if not found:
        raise SelectorError(
            f'the network has no module called "{pattern}"; {nearest(pattern, list(modules))}.'
        )
    called = [path for path in found if not _is_in_attention(modules, path)]
    if not called:
        raise CapabilityError(
            f'nn.MultiheadAttention uses "{found[0]}" without calling it, so nothing can be put '
            "there. Name the attention module itself."
        )
    # "body.*" means the layers, not the activations between them.
    telling = [path for path in called if any(hasattr(modules[path], size) for size in sizes)]
    return called if exact else telling or called


def _matches(path: str, pattern: str) -> bool:
    return path.endswith(f".{pattern}") or fnmatchcase(path, pattern)


def _is_in_attention(modules: dict[str, nn.Module], path: str) -> bool:
    return isinstance(modules.get(path.rpartition(".")[0]), nn.MultiheadAttention)


def _last_called(layer: nn.Module) -> nn.Module:
    """Return the last module of a chain: a new child of `nn.Sequential` would be called."""
    while isinstance(layer, nn.Sequential):
        layer = layer[-1]
    return layer


def _attach(layer: nn.Module, path: str, name: str, module: nn.Module) -> None:
    if hasattr(layer, name):
        raise RequestError(
            f'"{path}" has something called "{name}" already; choose another module.'
        )
    layer.add_module(name, module)
