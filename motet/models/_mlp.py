"""Networks for examples of any shape: logistic regression and the multilayer perceptron."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn


class Logistic(nn.Module):
    """Multinomial logistic regression: one linear layer on the flattened example.

    Args:
        shape: Shape of an example.
        classes: Number of classes.

    Example:
        >>> Logistic((4,), 3).head
        Linear(in_features=4, out_features=3, bias=True)
    """

    def __init__(self, shape: Sequence[int], classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(math.prod(shape), classes)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(x.flatten(1))
        return scores


class MLP(nn.Module):
    """Fully connected layers with ReLU; `hidden` lists their widths.

    `hidden=(200, 200)` is the "2NN" of McMahan et al. (2017).

    Args:
        shape: Shape of an example.
        classes: Number of classes.
        hidden: Widths of the hidden layers.

    Example:
        >>> MLP((4,), 3, hidden=(8,)).head
        Linear(in_features=8, out_features=3, bias=True)
    """

    def __init__(
        self, shape: Sequence[int], classes: int, *, hidden: Sequence[int] = (200,)
    ) -> None:
        super().__init__()
        widths = [math.prod(shape), *hidden]
        self.body = nn.Sequential()
        for inputs, outputs in pairwise(widths):
            self.body.extend([nn.Linear(inputs, outputs), nn.ReLU()])
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.body(x.flatten(1)))
        return scores
