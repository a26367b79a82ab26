"""Combined prediction: a shared network and a local one, whose outputs add.

Agarwal et al., "Federated Residual Learning", 2020. https://arxiv.org/abs/2003.12880
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn

from motet._core.selectors import select


class Combined(nn.Module):
    """phi_g(x; u) + phi_l(x; v): name `personal=("local",)` in FedAlt or FedSim."""

    def __init__(self, shared: nn.Module, local: nn.Module) -> None:
        super().__init__()
        self.shared = shared
        self.local = local

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.shared(x) + self.local(x)
        return out


def combined(
    shared: Callable[[], nn.Module], local: Callable[[], nn.Module], *, start: float = 1.0
) -> Callable[[], nn.Module]:
    """Return what makes the sum of two networks, for a `Task`.

    Args:
        shared: Makes the shared network; its parameters are called "shared...".
        local: Makes the network that stays at the client; its parameters are called "local...".
        start: Factor on the local network's last layer at first; with 0 the sum starts as the
            shared network itself, such as one that FedAvg has trained.

    Returns:
        A function that makes the sum, for a `Task`.

    Example:
        >>> import torch
        >>> make = combined(lambda: torch.nn.Linear(3, 2), lambda: torch.nn.Linear(3, 2))
        >>> make()(torch.ones(1, 3)).shape
        torch.Size([1, 2])
    """
    return partial(_combined, shared, local, start)


def _combined(
    shared: Callable[[], nn.Module], local: Callable[[], nn.Module], start: float
) -> nn.Module:
    network = Combined(shared(), local())
    _scale_last_layer(network.local, start)
    return network


def _scale_last_layer(network: nn.Module, factor: float) -> None:
    last = select(network, "head")
    for name, parameter in network.named_parameters():
        if name in last:
            parameter.data.mul_(factor)
