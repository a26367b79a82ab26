"""ResNet-18 and ResNet-34 with group or batch normalisation, for small or ImageNet-sized images.

He et al., "Deep Residual Learning for Image Recognition", CVPR 2016.
https://arxiv.org/abs/1512.03385
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from motet.models._adapters import ConvAdapter
from motet.models._layers import (
    ConvNorm,
    Norm,
    Stem,
    check_choice,
    convolution,
    image_shape,
    make_norm,
    pool_everywhere,
)


class ResNetStem(ConvNorm):
    """The first convolution: 3x3 for "small" images, 7x7/2 and pooling for "imagenet"."""

    def __init__(self, inputs: int, outputs: int, *, norm: Norm, stem: Stem) -> None:
        check_choice("stem", stem, ("small", "imagenet"))
        kernel, stride = (7, 2) if stem == "imagenet" else (3, 1)
        super().__init__(inputs, outputs, norm=norm, kernel=kernel, stride=stride)
        self.pools = stem == "imagenet"

    def forward(self, x: Tensor) -> Tensor:
        x = super().forward(x)
        return F.max_pool2d(x, 3, stride=2, padding=1) if self.pools else x


class BasicBlock(nn.Module):
    """Two 3x3 convolutions around which the input is carried, each with an adapter if asked for."""

    def __init__(self, inputs: int, outputs: int, *, norm: Norm, adapters: bool) -> None:
        super().__init__()
        stride = 1 if inputs == outputs else 2
        self.conv1 = convolution(inputs, outputs, stride=stride)
        self.adapter1 = ConvAdapter(outputs, norm=norm) if adapters else nn.Identity()
        self.norm1 = make_norm(norm, outputs)
        self.conv2 = convolution(outputs, outputs)
        self.adapter2 = ConvAdapter(outputs, norm=norm) if adapters else nn.Identity()
        self.norm2 = make_norm(norm, outputs)
        self.shortcut = _shortcut(inputs, outputs, stride, norm)

    def forward(self, x: Tensor) -> Tensor:
        out = self.norm1(self.adapter1(self.conv1(x))).relu()
        out = self.norm2(self.adapter2(self.conv2(out)))
        result: Tensor = (out + self.shortcut(x)).relu()
        return result


class ResNet(nn.Module):
    """A stem, four stages of basic blocks, a linear head.

    Args:
        shape: (channels, height, width) of an image.
        classes: Number of classes.
        norm: "group" has no statistics to share; "batch" is the original network.
        stem: "small" keeps the resolution of 28x28 or 32x32 images; "imagenet" is the original.
        width: Channels of the first stage; 64 is the original.
        adapters: Put an adapter behind every 3x3 convolution of the blocks (Pillutla et al., 2022).
    """

    blocks: ClassVar[tuple[int, int, int, int]]

    def __init__(
        self,
        shape: Sequence[int],
        classes: int,
        *,
        norm: Norm = "group",
        stem: Stem = "small",
        width: int = 64,
        adapters: bool = False,
    ) -> None:
        super().__init__()
        channels, _, _ = image_shape("a ResNet", shape, least=1)
        first, second, third, fourth = self.blocks
        self.stem = ResNetStem(channels, width, norm=norm, stem=stem)
        self.stage1 = _stage(width, width, first, norm=norm, adapters=adapters)
        self.stage2 = _stage(width, 2 * width, second, norm=norm, adapters=adapters)
        self.stage3 = _stage(2 * width, 4 * width, third, norm=norm, adapters=adapters)
        self.stage4 = _stage(4 * width, 8 * width, fourth, norm=norm, adapters=adapters)
        self.head = nn.Linear(8 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stage2(self.stage1(self.stem(x)))
        x = self.stage4(self.stage3(x))
        scores: Tensor = self.head(pool_everywhere(x))
        return scores


class ResNet18(ResNet):
    """Two basic blocks in each stage.

    Example:
        >>> import torch
        >>> ResNet18((3, 16, 16), classes=10, width=4)(torch.zeros(2, 3, 16, 16)).shape
        torch.Size([2, 10])
    """

    blocks = (2, 2, 2, 2)


class ResNet34(ResNet):
    """Sixteen basic blocks: 3, 4, 6 and 3.

    Example:
        >>> import torch
        >>> ResNet34((3, 16, 16), classes=10, width=4)(torch.zeros(2, 3, 16, 16)).shape
        torch.Size([2, 10])
    """

    blocks = (3, 4, 6, 3)


def _stage(inputs: int, outputs: int, count: int, *, norm: Norm, adapters: bool) -> nn.Sequential:
    """Chain `count` blocks; a stage that widens also halves the resolution, in its first block."""
    stage = nn.Sequential()
    for _ in range(count):
        stage.append(BasicBlock(inputs, outputs, norm=norm, adapters=adapters))
        inputs = outputs
    return stage


def _shortcut(inputs: int, outputs: int, stride: int, norm: Norm) -> nn.Module:
    if inputs == outputs:
        return nn.Identity()
    return ConvNorm(inputs, outputs, norm=norm, kernel=1, stride=stride, activation=nn.Identity)
