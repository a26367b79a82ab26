"""MobileNet-v1 and -v2, built from depthwise convolutions.

Howard et al., 2017, https://arxiv.org/abs/1704.04861; Sandler et al., CVPR 2018, https://arxiv.org/abs/1801.04381
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from motet.models._layers import ConvNorm, Norm, Stem, check_choice, image_shape, pool_everywhere

V1_BLOCKS = (  # output channels, stride
    (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2),
    (512, 1), (512, 1), (512, 1), (512, 1), (512, 1), (1024, 2), (1024, 1),
)  # fmt: skip

V2_STAGES = (  # expansion, output channels, blocks, stride of the first block
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2),
    (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
)  # fmt: skip


class SeparableBlock(nn.Module):
    """A 3x3 convolution of each channel by itself, then a 1x1 convolution across channels."""

    def __init__(self, inputs: int, outputs: int, *, stride: int, norm: Norm) -> None:
        super().__init__()
        self.depthwise = ConvNorm(inputs, inputs, stride=stride, groups=inputs, norm=norm)
        self.pointwise = ConvNorm(inputs, outputs, kernel=1, norm=norm)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.pointwise(self.depthwise(x))
        return out


class InvertedResidual(nn.Module):
    """Widen, convolve each channel by itself, narrow; carry the input around where shapes allow."""

    def __init__(
        self, inputs: int, outputs: int, *, expansion: int, stride: int, norm: Norm
    ) -> None:
        super().__init__()
        wide = inputs * expansion
        relu6 = nn.ReLU6
        self.expand = (
            ConvNorm(inputs, wide, kernel=1, norm=norm, activation=relu6)
            if expansion > 1
            else nn.Identity()
        )
        self.depthwise = ConvNorm(
            wide, wide, stride=stride, groups=wide, norm=norm, activation=relu6
        )
        self.project = ConvNorm(wide, outputs, kernel=1, norm=norm, activation=nn.Identity)
        self.carries_input = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.project(self.depthwise(self.expand(x)))
        return x + out if self.carries_input else out


class MobileNetV1(nn.Module):
    """A stem, 13 depthwise-separable blocks, a linear head.

    FedPer's text counts 11 blocks; the published network has 13.

    Args:
        shape: (channels, height, width) of an image.
        classes: Number of classes.
        norm: "batch" is the original network; "group" has no statistics to share.
        stem: "imagenet" halves the resolution at once, as the original; "small" keeps it.
        width: Multiplies the channels of every layer.

    Example:
        >>> import torch
        >>> MobileNetV1((3, 16, 16), classes=10, width=0.1)(torch.zeros(2, 3, 16, 16)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self,
        shape: Sequence[int],
        classes: int,
        *,
        norm: Norm = "batch",
        stem: Stem = "small",
        width: float = 1.0,
    ) -> None:
        super().__init__()
        channels, _, _ = image_shape("mobilenet-v1", shape, least=1)
        widths = [_scaled(32, width), *(_scaled(outputs, width) for outputs, _ in V1_BLOCKS)]
        self.stem = ConvNorm(channels, widths[0], stride=_stem_stride(stem), norm=norm)
        self.blocks = nn.Sequential(
            *(
                SeparableBlock(widths[i], widths[i + 1], stride=stride, norm=norm)
                for i, (_, stride) in enumerate(V1_BLOCKS)
            )
        )
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(pool_everywhere(self.blocks(self.stem(x))))
        return scores


class MobileNetV2(nn.Module):
    """A stem, 17 inverted residual blocks, a 1x1 convolution to 1280 channels, a linear head.

    The input of `head` is the 1280-d representation that kNN-Per stores.

    Args:
        shape: (channels, height, width) of an image.
        classes: Number of classes.
        norm: "batch" is the original network; "group" has no statistics to share.
        stem: "imagenet" halves the resolution at once, as the original; "small" keeps it.
        width: Multiplies the channels of every layer; the last convolution is never narrowed.
        dropout: Rate before the head; the original uses 0.2.

    Example:
        >>> import torch
        >>> MobileNetV2((3, 16, 16), classes=10, width=0.1)(torch.zeros(2, 3, 16, 16)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self,
        shape: Sequence[int],
        classes: int,
        *,
        norm: Norm = "batch",
        stem: Stem = "small",
        width: float = 1.0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        channels, _, _ = image_shape("mobilenet-v2", shape, least=1)
        inputs, last = _scaled(32, width), max(1280, _scaled(1280, width))
        self.stem = ConvNorm(
            channels, inputs, stride=_stem_stride(stem), norm=norm, activation=nn.ReLU6
        )
        self.blocks = _inverted_residuals(inputs, width, norm)
        self.last = ConvNorm(_scaled(320, width), last, kernel=1, norm=norm, activation=nn.ReLU6)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(last, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.last(self.blocks(self.stem(x)))
        scores: Tensor = self.head(self.dropout(pool_everywhere(x)))
        return scores


def _inverted_residuals(inputs: int, width: float, norm: Norm) -> nn.Sequential:
    blocks = nn.Sequential()
    for expansion, channels, count, first_stride in V2_STAGES:
        outputs = _scaled(channels, width)
        for stride in [first_stride, *[1] * (count - 1)]:
            blocks.append(
                InvertedResidual(inputs, outputs, expansion=expansion, stride=stride, norm=norm)
            )
            inputs = outputs
    return blocks


def _scaled(channels: int, width: float) -> int:
    """Scale to the nearest multiple of 8, but never to less than 90 % of what was asked for."""
    wanted = channels * width
    rounded = max(8, int(wanted + 4) // 8 * 8)
    return rounded if rounded >= 0.9 * wanted else rounded + 8


def _stem_stride(stem: Stem) -> int:
    check_choice("stem", stem, ("small", "imagenet"))
    return 2 if stem == "imagenet" else 1
