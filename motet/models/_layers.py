"""Layers, initialisation and shape checks that several networks share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from motet.errors import RequestError

Norm: TypeAlias = Literal["group", "batch"]
Stem: TypeAlias = Literal["small", "imagenet"]
Activation: TypeAlias = type[nn.ReLU] | type[nn.ReLU6] | type[nn.Identity]


def make_norm(kind: Norm, channels: int) -> nn.Module:
    """Make the normalisation layer called `kind`.

    Groups hold 8 channels in layers of up to 64 channels, 16 up to 512, 32 above.

    >>> make_norm("group", 128).num_groups
    8
    """
    check_choice("norm", kind, ("group", "batch"))
    if kind == "batch":
        return nn.BatchNorm2d(channels)
    wanted = 8 if channels <= 64 else 16 if channels <= 512 else 32
    # A scaled-down network may have a width that is not a multiple of the wanted group size.
    return nn.GroupNorm(channels // math.gcd(channels, wanted), channels)


def convolution(
    inputs: int,
    outputs: int,
    kernel: int = 3,
    *,
    stride: int = 1,
    groups: int = 1,
    bias: bool = False,
) -> nn.Conv2d:
    """Make a padded convolution, drawn as He et al. (2015) do, by fan-out; biases start at zero."""
    layer = nn.Conv2d(
        inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=bias
    )
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


class ConvNorm(nn.Module):
    """Convolution, normalisation and activation."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        norm: Norm,
        kernel: int = 3,
        stride: int = 1,
        groups: int = 1,
        activation: Activation = nn.ReLU,
    ) -> None:
        super().__init__()
        self.conv = convolution(inputs, outputs, kernel, stride=stride, groups=groups)
        self.norm = make_norm(norm, outputs)
        self.activation = activation()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.activation(self.norm(self.conv(x)))
        return out


def image_shape(network: str, shape: Sequence[int], *, least: int) -> tuple[int, int, int]:
    """Return (channels, height, width); refuse other shapes, and images that are too small."""
    if len(shape) != 3:
        raise RequestError(
            f"{network} reads images of shape (channels, height, width), but an example has shape "
            f'{tuple(shape)}. Add a channel axis with x[:, None], or use "mlp", which takes any '
            "shape."
        )
    channels, height, width = shape
    if min(height, width) < least:
        raise RequestError(
            f"{network} needs images of at least {least} x {least} pixels, but these have "
            f'{height} x {width}. Enlarge them, or use "small-cnn" or "mlp".'
        )
    return channels, height, width


def sequence_length(network: str, shape: Sequence[int]) -> int:
    """Return the number of tokens of an example; refuse other shapes."""
    if len(shape) != 1:
        raise RequestError(
            f"{network} reads integer tokens of shape (length,), but an example has shape "
            f'{tuple(shape)}. For numbers instead of tokens, use "mlp".'
        )
    return shape[0]


def check_choice(option: str, value: str, choices: Sequence[str]) -> None:
    """Refuse an option outside its choices."""
    if value not in choices:
        known = " or ".join(f'"{choice}"' for choice in choices)
        raise RequestError(f'{option} is {known}; got "{value}".')


def count_parameters(network: nn.Module) -> int:
    """Count trainable numbers; a shared tensor counts once.

    Args:
        network: Any network.

    Returns:
        The number of trainable numbers.

    Example:
        >>> count_parameters(nn.Linear(784, 10))
        7850
    """
    return sum(parameter.numel() for parameter in network.parameters())


def pool_everywhere(x: Tensor) -> Tensor:
    """Average over the image: [batch, channels, height, width] -> [batch, channels]."""
    return torch.mean(x, dim=(2, 3))
