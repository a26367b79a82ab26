"""Small convolutional networks: the papers', one for tiny images and one for sensor windows."""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from motet.errors import RequestError
from motet.models._layers import image_shape


class McMahanCNN(nn.Module):
    """Two padded 5x5 convolutions with pooling, a hidden layer of 512 (McMahan et al., 2017).

    Args:
        shape: (channels, height, width) of an image.
        classes: Number of classes.
        hidden: Width of the hidden layer.

    Example:
        >>> McMahanCNN((1, 28, 28), 3).head.out_features
        3
    """

    def __init__(self, shape: Sequence[int], classes: int, *, hidden: int = 512) -> None:
        super().__init__()
        channels, height, width = image_shape("mcmahan-cnn", shape, least=4)
        self.conv1 = nn.Conv2d(channels, 32, 5, padding=2)
        self.conv2 = nn.Conv2d(32, 64, 5, padding=2)
        self.hidden = nn.Linear(64 * (height // 4) * (width // 4), hidden)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self.conv1(x).relu(), 2)
        x = F.max_pool2d(self.conv2(x).relu(), 2)
        scores: Tensor = self.head(self.hidden(x.flatten(1)).relu())
        return scores


class FomoCNN(nn.Module):
    """Three unpadded 3x3 convolutions, a hidden layer of 64: the network of FedFomo's code.

    The paper (Zhang et al., ICLR 2021) says "as in McMahan et al."; its code has this one.

    Args:
        shape: (channels, height, width) of an image.
        classes: Number of classes.

    Example:
        >>> import torch
        >>> FomoCNN((3, 32, 32), classes=10)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    def __init__(self, shape: Sequence[int], classes: int) -> None:
        super().__init__()
        channels, height, width = image_shape("fomo-cnn", shape, least=18)
        self.conv1 = nn.Conv2d(channels, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.conv3 = nn.Conv2d(64, 64, 3)
        self.hidden = nn.Linear(64 * self._left(height) * self._left(width), 64)
        self.head = nn.Linear(64, classes)

    @staticmethod
    def _left(side: int) -> int:
        return ((side - 2) // 2 - 2) // 2 - 2

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self.conv1(x).relu(), 2)
        x = F.max_pool2d(self.conv2(x).relu(), 2)
        x = self.conv3(x).relu()
        scores: Tensor = self.head(self.hidden(x.flatten(1)).relu())
        return scores


class EmnistCNN(nn.Module):
    """Two unpadded 3x3 convolutions, one pooling, a hidden layer of 128 (Reddi et al., 2021; Flow).

    Args:
        shape: (channels, height, width) of an image.
        classes: Number of classes.
        dropout: Rates after the pooling and after the hidden layer; the papers use (0.25, 0.5).

    Example:
        >>> import torch
        >>> EmnistCNN((1, 28, 28), classes=62, dropout=(0.25, 0.5))(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 62])
    """

    def __init__(
        self, shape: Sequence[int], classes: int, *, dropout: tuple[float, float] = (0.0, 0.0)
    ) -> None:
        super().__init__()
        channels, height, width = image_shape("emnist-cnn", shape, least=6)
        after_pool, after_hidden = dropout
        self.conv1 = nn.Conv2d(channels, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.dropout1 = nn.Dropout(after_pool)
        self.hidden = nn.Linear(64 * ((height - 4) // 2) * ((width - 4) // 2), 128)
        self.dropout2 = nn.Dropout(after_hidden)
        self.head = nn.Linear(128, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv2(self.conv1(x).relu()).relu()
        x = self.dropout1(F.max_pool2d(x, 2)).flatten(1)
        scores: Tensor = self.head(self.dropout2(self.hidden(x).relu()))
        return scores


class SmallCNN(nn.Module):
    """Two padded 3x3 convolutions with pooling, a hidden layer of 64: for images of 8x8 pixels.

    Args:
        shape: (channels, height, width) of an image.
        classes: Number of classes.

    Example:
        >>> SmallCNN((1, 8, 8), 3).head.out_features
        3
    """

    def __init__(self, shape: Sequence[int], classes: int) -> None:
        super().__init__()
        channels, height, width = image_shape("small-cnn", shape, least=4)
        self.conv1 = nn.Conv2d(channels, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.hidden = nn.Linear(32 * (height // 4) * (width // 4), 64)
        self.head = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self.conv1(x).relu(), 2)
        x = F.max_pool2d(self.conv2(x).relu(), 2)
        scores: Tensor = self.head(self.hidden(x.flatten(1)).relu())
        return scores


class SensorCNN(nn.Module):
    """Two convolutions over time, then the mean over it: for sensor windows of (time, channels).

    Args:
        shape: (time, channels) of a window.
        classes: Number of classes.

    Example:
        >>> import torch
        >>> SensorCNN((128, 9), classes=6)(torch.zeros(2, 128, 9)).shape
        torch.Size([2, 6])
    """

    def __init__(self, shape: Sequence[int], classes: int) -> None:
        super().__init__()
        if len(shape) != 2:
            raise RequestError(
                "sensor-cnn reads windows of shape (time, channels), but an example has shape "
                f'{tuple(shape)}. Use "mlp", which takes any shape.'
            )
        self.conv1 = nn.Conv1d(shape[1], 32, 9, stride=2, padding=4)
        self.conv2 = nn.Conv1d(32, 64, 9, stride=2, padding=4)
        self.head = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv1(x.transpose(1, 2)).relu()
        x = self.conv2(x).relu()
        scores: Tensor = self.head(x.mean(2))
        return scores
