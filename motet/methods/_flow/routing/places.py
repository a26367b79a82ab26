"""Which layers of a network are routed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from torch import nn

from motet._core.selectors import blocks_of
from motet.errors import CapabilityError, SelectorError, nearest
from motet.models._recurrent import LSTM

WHOLE = "network"  # what the whole network is called, where it is one layer


class Place(NamedTuple):
    """Modules that share one route per instance, or a recurrent layer with one per step."""

    name: str
    paths: tuple[str, ...]
    recurrent: bool


def places(network: nn.Module, layers: tuple[str, ...] | None) -> tuple[Place, ...]:
    """Find what is routed: the layers named, or else every recurrent layer, or else every block."""
    modules = dict(network.named_modules())
    if layers is None:
        found = _recurrent(modules) or _blocks(network, modules) or _whole(network)
    else:
        found = [_named(name, modules) for name in layers]
        _check_apart(layers)
    for place in found:
        _check_routable(place, modules)
    return tuple(found)


def _recurrent(modules: Mapping[str, nn.Module]) -> list[Place]:
    return [
        Place(path, (path,), recurrent=True) for path, m in modules.items() if isinstance(m, LSTM)
    ]


def _blocks(network: nn.Module, modules: Mapping[str, nn.Module]) -> list[Place]:
    """Take every block but the embeddings, which the policy reads."""
    found = []
    for block in blocks_of(network):
        paths = tuple(path for path in block if path in modules)
        if paths and not any(_holds(modules[path], nn.Embedding) for path in paths):
            found.append(Place("+".join(paths), paths, recurrent=False))
    return found


def _whole(network: nn.Module) -> list[Place]:
    if not any(True for _ in network.parameters()):
        raise CapabilityError("there is nothing to route: the network has no parameters.")
    return [Place(WHOLE, ("",), recurrent=False)]


def _named(name: str, modules: Mapping[str, nn.Module]) -> Place:
    if name not in modules or name == "":
        known = [path for path, m in modules.items() if path and _holds_parameters(m)]
        raise SelectorError(f'no module is called "{name}"; {nearest(name, known)}.')
    return Place(name, (name,), recurrent=isinstance(modules[name], LSTM))


def _check_apart(layers: tuple[str, ...]) -> None:
    for outer in layers:
        inner = [name for name in layers if name.startswith(f"{outer}.")]
        if inner or layers.count(outer) > 1:
            raise SelectorError(
                f'"{(inner or [outer])[0]}" would be routed twice, also as part of "{outer}". '
                "Name one of them, once."
            )


def _check_routable(place: Place, modules: Mapping[str, nn.Module]) -> None:
    for path in place.paths:
        if isinstance(modules[path], nn.ModuleList | nn.ModuleDict):
            raise SelectorError(
                f'"{path}" is a list of layers, which is never called itself; name its members, '
                f'as "{path}.{next(iter(dict(modules[path].named_children())), "0")}".'
            )
        if _holds(modules[path], nn.RNNBase):
            raise CapabilityError(
                f'"{path or WHOLE}" holds a recurrent layer of torch, which cannot be routed per '
                "step nor stacked over clients. Use motet.models.LSTM, which takes the same state."
            )


def _holds(module: nn.Module, kind: type[nn.Module]) -> bool:
    return any(isinstance(inner, kind) for inner in module.modules())


def _holds_parameters(module: nn.Module) -> bool:
    return any(True for _ in module.parameters())
