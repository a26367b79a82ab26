"""How two routes are weighed, mixed and charged for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from motet._core.tree import tree_map
from motet.errors import CapabilityError, RequestError

Recurrence = Literal["poster", "release"]
Favour = Literal["global", "local"]
EPS = 1e-6  # inside the logarithm of the regulariser, as released


@dataclass(frozen=True)
class Routing:
    """How a network is routed, and what its policy pays for the route it takes.

    Attributes:
        layers: Module paths; None routes every recurrent layer if there are any, else every block.
        hidden: Widths of the policy's hidden layers.
        temperature: Of the policy's softmax; small is nearly hard, large nearly one half each.
        recurrence: "poster" feeds both cells the mixed state; "release" lets the local cell keep
            its own, and the policy read both new states.
        lam: Weight of the regulariser.
        favour: The route that the regulariser pushes towards.
    """

    layers: tuple[str, ...] | None = None
    hidden: tuple[int, ...] = (64, 32)
    temperature: float = 1.0
    recurrence: Recurrence = "poster"
    lam: float = 0.0
    favour: Favour = "global"

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise RequestError(
                f"temperature must be above 0; got {self.temperature}.", option="temperature"
            )
        if not self.lam >= 0:
            raise RequestError(f"lam must be 0 or more; got {self.lam}.", option="lam")
        for name, choices in (("recurrence", Recurrence), ("favour", Favour)):
            _check_choice(name, getattr(self, name), choices)


def route_weights(logits: Tensor, temperature: float, *, hard: bool) -> Tensor:
    """Turn two logits (shared, local) into the weights of the two routes; a tie is shared.

    >>> [round(v, 6) for v in route_weights(torch.tensor([1.0, 0.0]), 0.1, hard=False).tolist()]
    [0.999955, 4.5e-05]
    >>> route_weights(torch.tensor([0.5, 0.5]), 1.0, hard=True).tolist()
    [1.0, 0.0]
    """
    if hard:
        shared = (logits[..., 0] >= logits[..., 1]).to(logits.dtype)
        return torch.stack([shared, 1 - shared], dim=-1)
    return (logits / temperature).softmax(-1)


def mix(weights: Tensor, shared: Any, local: Any, *, hard: bool = False) -> Any:
    """Join the outputs of both routes by per-instance weights, [batch, 2].

    Hard weights choose instead of multiplying: 0 times a diverged output would not be 0.
    """

    def one(a: Tensor, b: Tensor) -> Tensor:
        _check_instances(a, weights)
        w = weights.view(*weights.shape, *[1] * (a.ndim - 1))  # [batch, 2, 1, ...]
        return torch.where(w[:, 0] > w[:, 1], a, b) if hard else w[:, 0] * a + w[:, 1] * b

    return tree_map(one, shared, local)


def regulariser(to_shared: Mapping[str, Tensor], favour: Favour = "global") -> Tensor:
    """Charge each instance -log(p^2 + eps) for the probability p of the favoured route.

    Args:
        to_shared: By routed layer, the probability of the shared route, [batch, steps].
        favour: "global" is the shared route, "local" the other one.

    Returns:
        The mean over layers and steps, [batch].
    """
    favoured = [p if favour == "global" else 1 - p for p in to_shared.values()]
    charges = [-(p.square() + EPS).log().mean(1) for p in favoured]
    return torch.stack(charges).mean(0)


def _check_instances(output: Tensor, weights: Tensor) -> None:
    if output.ndim == 0 or output.shape[0] != weights.shape[0]:
        raise CapabilityError(
            f"a routed layer must return one row per instance; got {weights.shape[0]} instances "
            f"and an output of shape {tuple(output.shape)}. Route a layer around it or inside."
        )


def _check_choice(name: str, value: str, choices: Any) -> None:
    known = choices.__args__
    if value not in known:
        listed = " or ".join(f'"{choice}"' for choice in known)
        raise RequestError(f'{name}= is {listed}; got "{value}".')
