"""VGG-11, the shallowest network of Simonyan and Zisserman.

"Very Deep Convolutional Networks for Large-Scale Image Recognition", ICLR 2015.
https://arxiv.org/abs/1409.1556
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor, nn

from motet.models._layers import Norm, convolution, image_shape, make_norm

# Channels of the convolutions, over the first one's; every stage ends in a 2x2 pooling.
STAGES = ((1,), (2,), (4, 4), (8, 8), (8, 8))


class VGG11(nn.Module):
    """Eight 3x3 convolutions, two hidden layers, a linear head.

    Args:
        shape: (channels, height, width) of an image, at least 32 x 32: it is halved five times.
        classes: Number of classes.
        norm: None is the original network; "batch" or "group" normalises after each convolution.
        width: Channels of the first convolution; 64 is the original.
        hidden: Width of the hidden layers; 4096 is the original, 512 is plenty for small images.
        dropout: Rate behind each hidden layer; the original uses 0.5.

    Example:
        >>> import torch
        >>> VGG11((3, 32, 32), classes=10, width=4, hidden=8)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self,
        shape: Sequence[int],
        classes: int,
        *,
        norm: Norm | None = None,
        width: int = 64,
        hidden: int = 4096,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        channels, *sides = image_shape("vgg-11", shape, least=32)
        features = 8 * width * math.prod(side // 32 for side in sides)
        self.features = _convolutions(channels, width, norm)
        self.hidden = nn.Sequential(
            *_dense(features, hidden, dropout), *_dense(hidden, hidden, dropout)
        )
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.hidden(self.features(x).flatten(1)))
        return scores


def _convolutions(inputs: int, width: int, norm: Norm | None) -> nn.Sequential:
    layers: list[nn.Module] = []
    for stage in STAGES:
        for outputs in (width * multiple for multiple in stage):
            layers.append(convolution(inputs, outputs, bias=True))
            layers += [] if norm is None else [make_norm(norm, outputs)]
            layers.append(nn.ReLU())
            inputs = outputs
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers)


def _dense(inputs: int, outputs: int, dropout: float) -> list[nn.Module]:
    return [nn.Linear(inputs, outputs), nn.ReLU(), nn.Dropout(dropout)]
