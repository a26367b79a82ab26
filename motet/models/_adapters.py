"""Adapters: small residual modules that a client keeps while the network around them is shared.

Pillutla et al., "Federated Learning with Partial Model Personalization", ICML 2022.
https://arxiv.org/abs/2204.03809
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from motet._core import selectors
from motet.errors import RequestError
from motet.models._layers import Norm, make_norm


class ConvAdapter(nn.Module):
    """x + conv1x1(dropout(norm(x))), close to the identity at first."""

    is_adapter: ClassVar[bool] = True

    def __init__(self, channels: int, *, norm: Norm, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm = make_norm(norm, channels)
        self.dropout = nn.Dropout(dropout)
        self.conv = nn.Conv2d(channels, channels, 1, bias=False)
        nn.init.normal_(self.conv.weight, std=1e-4)

    def forward(self, x: Tensor) -> Tensor:
        # Deviates: Vision adapters have one skip connection.
        out: Tensor = x + self.conv(self.dropout(self.norm(x)))
        return out


class BottleneckAdapter(nn.Module):
    """x + up(relu(down(dropout(x)))), close to the identity at first."""

    is_adapter: ClassVar[bool] = True

    def __init__(self, width: int, bottleneck: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.down = nn.Linear(width, bottleneck)
        self.up = nn.Linear(bottleneck, width)
        for layer in (self.down, self.up):
            nn.init.normal_(layer.weight, std=0.01)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.up(self.down(self.dropout(x)).relu())
        return out


def adapter_paths(network: nn.Module) -> tuple[str, ...]:
    """List what is personal in the paper's adapter mode: adapters, and norms on the main path.

    The norms of the downsampling shortcuts stay shared. `personal="adapters"` means the same.

    Args:
        network: A network with adapters.

    Returns:
        Dotted paths of modules.

    Raises:
        RequestError: The network was built without adapters.

    Example:
        >>> import motet
        >>> options = {"shape": (20,), "classes": 50, "adapters": 4}
        >>> network = motet.models.build("transformer", **options)
        >>> any("adapter" in path for path in adapter_paths(network))
        True
    """
    paths = selectors.adapter_paths(network)
    if not paths:
        raise RequestError(
            f"{type(network).__name__} was built without adapters. Build it with adapters=True "
            "(resnet-18, resnet-34) or adapters=16 (transformer); "
            "`motet.models.with_conv_adapters` puts them into any network."
        )
    return paths
