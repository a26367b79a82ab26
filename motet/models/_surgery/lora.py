"""Low-rank adapters: W x + scale B A x, at linear, convolution and embedding layers.

Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022.
https://arxiv.org/abs/2106.09685
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from motet._core.building import built
from motet._core.selectors import Selector, select
from motet.errors import CapabilityError, RequestError, SelectorError, nearest

Build: TypeAlias = Callable[[], nn.Module]
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
LAYERS = (nn.Linear, nn.Embedding, *CONVOLUTIONS)
A, B, SCALE, RESIDUAL = "lora_A", "lora_B", "lora_scale", "lora_residual"
PLAIN = "lora_plain_weight"


def with_lora(
    build: Build,
    at: str | Sequence[str],
    *,
    rank: int = 8,
    alpha: float | None = None,
    train: Selector = (),
    dropout: float = 0.0,
    exact: bool = False,
) -> Build:
    """Freeze a network and add scale * B A to the weights of some layers; scale = alpha / rank.

    A layer called "query" gets the parameters "query.lora_A" and "query.lora_B". B starts at 0, so
    that the network starts as it was. `personal="lora_B"`, "lora_A" or "lora" names them.

    Args:
        build: Makes the network.
        at: Names of layers, their last parts ("query"), or patterns ("encoder.*.query").
        rank: Rows of A; peft's `r`.
        alpha: Numerator of the scale; `rank` if None, for a scale of 1.
        train: What else is trained, such as "head"; all other weights are frozen.
        dropout: Rate of dropout before A, in training.
        exact: Whether layers have a place for what a mean of A and a mean of B leave out, which
            `motet.ExactLora` fills: a matrix per layer, sent down with every broadcast.

    Returns:
        What makes the adapted network, for `Task`.

    Raises:
        RequestError: `rank`, `alpha` or `dropout` is out of range, or `at` is empty.

    Example:
        >>> build = with_lora(lambda: nn.Sequential(nn.Linear(4, 3)), "0", rank=2)
        >>> [name for name, p in build().named_parameters() if p.requires_grad]
        ['0.lora_A', '0.lora_B']
    """
    patterns = (at,) if isinstance(at, str) else tuple(at)
    _check_request(patterns, rank, alpha, dropout)
    scale = (rank if alpha is None else alpha) / rank
    return partial(_with_lora, build, patterns, rank, scale, train, dropout, exact=exact)


def _check_request(patterns: Sequence[str], rank: Any, alpha: Any, dropout: Any) -> None:
    if not patterns:
        raise RequestError('at= names no layer; name some, such as at=("query", "value").')
    if not isinstance(rank, int) or isinstance(rank, bool) or rank < 1:
        raise RequestError(f"rank= must be a whole number of 1 or more; got {rank!r}.")
    if alpha is not None and not (_is_number(alpha) and alpha != 0):
        raise RequestError(
            f"alpha= must be a finite number other than 0, which would switch adapters off; got "
            f"{alpha!r}."
        )
    if not (_is_number(dropout) and 0 <= dropout < 1):
        raise RequestError(f"dropout= must be a rate from 0 to below 1; got {dropout!r}.")


def _is_number(value: Any) -> bool:
    real = isinstance(value, (int, float)) and not isinstance(value, bool)
    return real and math.isfinite(value)


def lora_layers(network: nn.Module) -> dict[str, nn.Module]:
    """List the layers that `with_lora` has adapted.

    Args:
        network: Made by what `with_lora` returns.

    Returns:
        The layers, by path.

    Example:
        >>> list(lora_layers(with_lora(lambda: nn.Sequential(nn.Linear(4, 3)), "0")()))
        ['0']
    """
    return {path: m for path, m in network.named_modules() if isinstance(_own(m, A), Tensor)}


def lora_delta(layer: nn.Module) -> Tensor:
    """Compute what an adapter adds to its layer's weight: scale * (B A + residual)."""
    made = _own(layer, B) @ _own(layer, A).flatten(1)
    residual = layer._buffers.get(RESIDUAL)
    full = made if residual is None else made + residual
    scaled: Tensor = _as_weight(layer, full) * getattr(layer, SCALE)
    return scaled


def _as_weight(layer: nn.Module, made: Tensor) -> Tensor:
    """Give a product [outputs, inputs] the shape of the layer's weight."""
    return made.mT if _is_turned(layer) else made.view(_own(layer, "weight").shape)


def merge_lora(network: nn.Module) -> nn.Module:
    """Add the adapters of a network to its weights.

    Args:
        network: With layers of `with_lora`, such as `run.model(client)`.

    Returns:
        A copy that computes the same, without adapters. A layer that shared its weight with
        another one has its own afterwards.

    Raises:
        RequestError: No layer of the network has an adapter.

    Example:
        >>> network = with_lora(lambda: nn.Sequential(nn.Linear(4, 3)), "0")()
        >>> list(merge_lora(network).state_dict())
        ['0.weight', '0.bias']
    """
    plain = copy.deepcopy(network)
    layers = lora_layers(plain)
    if not layers:
        raise RequestError(
            "the network has no layer that `with_lora` adapted; nothing to merge. A model of peft "
            "merges itself: `network.model.merge_and_unload()`."
        )
    for layer in layers.values():
        weight = _own(layer, "weight")
        merged = (weight + lora_delta(layer)).detach()  # not in place: it may be tied
        layer.register_parameter("weight", nn.Parameter(merged, weight.requires_grad))
        layer._buffers.pop(RESIDUAL, None)
        for name in (A, B):
            del layer._parameters[name]
        layer._modules.pop("lora_dropout", None)
        for hooks in (layer._forward_pre_hooks, layer._forward_hooks):
            for number in [n for n, hook in hooks.items() if hook in HOOKS]:
                del hooks[number]
    return plain


def _with_lora(
    build: Build,
    patterns: Sequence[str],
    rank: int,
    scale: float,
    train: Selector,
    dropout: float,
    *,
    exact: bool,
) -> nn.Module:
    network = built(build)
    chosen = {id(layer): (path, layer) for path, layer in _matching(network, patterns)}
    trained = select(network, train) if train else frozenset()
    for name, parameter in network.named_parameters():
        earlier = name.rpartition(".")[2] in (A, B)  # of another call, with another rank
        parameter.requires_grad_(name in trained or (earlier and parameter.requires_grad))
    for path, layer in chosen.values():  # a layer with several names once
        _adapt(layer, path, rank, scale, dropout, exact=exact)
    return network


def _matching(network: nn.Module, patterns: Sequence[str]) -> Iterator[tuple[str, nn.Module]]:
    modules = {p: m for p, m in network.named_modules(remove_duplicate=False) if p}
    if not modules:
        raise CapabilityError(
            f"the network is a single {type(network).__name__}, and adapters go to layers inside a "
            'network; wrap it: nn.Sequential(layer), with at="0".'
        )
    for pattern in patterns:
        found = [path for path in modules if _matches(path, pattern)]
        fit = [path for path in found if can_have_lora(modules, path)]
        if not found:
            raise SelectorError(
                f'no module matches at="{pattern}"; {nearest(pattern, list(modules))}.'
            )
        if not fit:
            raise CapabilityError(
                f'at="{pattern}" names {found[0]} ({type(modules[found[0]]).__name__}), which '
                f"cannot have a low-rank adapter: {_why_not(modules, found[0])}."
            )
        yield from ((path, modules[path]) for path in fit)


def _matches(path: str, pattern: str) -> bool:
    return path == pattern or path.endswith(f".{pattern}") or fnmatchcase(path, pattern)


def can_have_lora(modules: dict[str, nn.Module], path: str) -> bool:
    """Tell whether a module is a layer whose weight a low-rank product can be added to."""
    return _why_not(modules, path) is None


def _why_not(modules: dict[str, nn.Module], path: str) -> str | None:
    layer, parent = modules[path], modules.get(path.rpartition(".")[0])
    if isinstance(parent, nn.MultiheadAttention) or isinstance(layer, nn.MultiheadAttention):
        return "nn.MultiheadAttention uses its layers without calling them"
    if not isinstance(layer, LAYERS) and not _is_conv1d(layer):
        return "name linear, convolution or embedding layers that `forward` calls"
    if _own(layer, "weight") is None:
        return "its weight is computed from others (weight or spectral norm); name other layers"
    if getattr(layer, "max_norm", None) is not None:
        return "max_norm= rewrites its weight in every pass; build the layer without it"
    return None


def _is_conv1d(layer: nn.Module) -> bool:
    """Tell whether a layer is the `Conv1D` of transformers: a linear layer, weights turned."""
    return type(layer).__name__ == "Conv1D" and getattr(layer.weight, "ndim", 0) == 2


def _is_turned(layer: nn.Module) -> bool:
    return isinstance(layer, nn.Embedding) or _is_conv1d(layer)


def _adapt(
    layer: nn.Module, path: str, rank: int, scale: float, dropout: float, *, exact: bool
) -> None:
    if hasattr(layer, A):
        raise RequestError(f'"{path}" has an adapter already; name each layer once.')
    if dropout and has_own_forward(layer):
        raise CapabilityError(
            f'"{path}", a {type(layer).__name__}, has a forward of its own, so its adapter goes '
            "into its weight, where there is no place for dropout before A. Leave out dropout=, or "
            "name other layers."
        )
    weight = _own(layer, "weight")
    inputs = weight.shape[:1] if _is_turned(layer) else weight.shape[1:]
    outputs = weight.shape[1] if _is_turned(layer) else weight.shape[0]
    a, b = weight.new_empty(rank, *inputs), weight.new_zeros(outputs, rank)
    if isinstance(layer, nn.Embedding):  # rows are looked up, so they start at 0 instead of B
        a, b = torch.zeros_like(a), torch.randn_like(b)
    else:
        nn.init.kaiming_uniform_(a.view(rank, -1), a=math.sqrt(5))
    layer.register_parameter(A, nn.Parameter(a))
    layer.register_parameter(B, nn.Parameter(b))
    setattr(layer, SCALE, scale)
    if exact:
        layer.register_buffer(RESIDUAL, weight.new_zeros(outputs, inputs.numel()))
    if dropout:
        layer.add_module("lora_dropout", nn.Dropout(dropout))
    # Before hooks that are there already: they see the output of the layer with its adapter.
    if _goes_beside(layer):
        layer.register_forward_hook(_add_low_rank, prepend=True, with_kwargs=True)
    else:
        layer.register_forward_pre_hook(_change_weight)
        layer.register_forward_hook(_restore_weight, prepend=True, always_call=True)


def _goes_beside(layer: nn.Module) -> bool:
    """Tell whether B A x is computed beside W x; otherwise the layer computes with W + B A.

    A product beside is cheaper, but not for groups, whose filters see their own channels alone,
    and it is only the same if the layer does nothing but multiply.
    """
    is_grouped = isinstance(layer, CONVOLUTIONS) and layer.groups > 1
    return not has_own_forward(layer) and (not is_grouped or "lora_dropout" in layer._modules)


def has_own_forward(layer: nn.Module) -> bool:
    """Tell whether a layer computes something else than its kind does: pads, scales, counts."""
    kind = next((k for k in LAYERS if isinstance(layer, k)), type(layer))
    methods = ("forward", "_conv_forward")
    return "forward" in vars(layer) or any(
        getattr(type(layer), name, None) is not getattr(kind, name, None) for name in methods
    )


def _change_weight(layer: nn.Module, _: Any) -> None:
    weight = _own(layer, "weight")
    vars(layer)[PLAIN] = weight
    changed: Any = weight + lora_delta(layer)  # as torch's functional_call does it
    layer._parameters["weight"] = changed


def _restore_weight(layer: nn.Module, _: Any, __: Any) -> None:
    if PLAIN in vars(layer):
        layer._parameters["weight"] = vars(layer).pop(PLAIN)


def _add_low_rank(
    layer: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], output: Tensor
) -> Tensor:
    given = inputs[0] if inputs else next(iter(named.values()))
    a, b, scale = _own(layer, A), _own(layer, B), getattr(layer, SCALE)
    dropout = layer._modules.get("lora_dropout")
    x = given if dropout is None else dropout(given)
    total: Tensor = output + _low_rank(layer, x, a, b * scale)  # B is smaller than the output
    residual = layer._buffers.get(RESIDUAL)
    if residual is not None:
        total = total + _applied(layer, given, _as_weight(layer, residual)) * scale
    return total


HOOKS = (_add_low_rank, _change_weight, _restore_weight)


def _low_rank(layer: nn.Module, x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    if isinstance(layer, nn.Embedding):
        return F.embedding(x, a.mT) @ b.mT
    if not isinstance(layer, CONVOLUTIONS):
        return F.linear(F.linear(x, a), b)
    convolve: Callable[..., Tensor] = layer._conv_forward
    if layer.groups > 1:  # A has a row per filter, and filters of a group see its channels alone
        return convolve(x, _as_weight(layer, b @ a.flatten(1)), None)
    hidden = convolve(x, a, None)
    return torch.einsum("or,br...->bo...", b, hidden)


def _applied(layer: nn.Module, x: Tensor, weight: Tensor) -> Tensor:
    if isinstance(layer, nn.Embedding):
        return F.embedding(x, weight)
    if isinstance(layer, CONVOLUTIONS):
        convolve: Callable[..., Tensor] = layer._conv_forward
        return convolve(x, weight, None)
    return F.linear(x, weight.mT if _is_turned(layer) else weight)


def _own(layer: nn.Module, name: str) -> Any:
    """Return a tensor of the layer itself; None if it has none of that name."""
    return layer._parameters.get(name)
