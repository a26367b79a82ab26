"""Weights of a first layer whose updates wait for the last step.

Plain gradient descent adds products to such weights: of the data of a step, X, and the gradient of
the layer's outputs, D. After two steps they are W + D1'X1 + D2'X2, and all that the third step
needs of them is its outputs, X3 W' + (X3 X1') D1 + (X3 X2') D2: products of the data with the first
weights and with other data, which can be computed beforehand. So large weights are read once and
written once, in two large products, instead of twice and once in every step. The sums are the same
up to rounding (docs/decisions/0019-weights-that-wait.md).

`motet._tracing.deferring` finds such layers in a recorded step. Here is what the training loop
needs to run the rest of the step; nothing in this module reads a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


class Layer(NamedTuple):
    """Weights whose updates can wait."""

    place: int  # among a step's arguments, and among its results
    number: float  # factor on every product that is added; minus the learning rate
    shape: tuple[int, ...]  # [clients, outputs, inputs]

    def can_wait_for(self, rows: int) -> bool:
        """Tell whether waiting pays for this many rows of data.

        The products of the data with themselves are [rows, rows]. They replace reading and writing
        [outputs, inputs], so both sides of the weights have to be clearly larger.
        """
        return 2 * rows <= min(self.shape[1:])


@dataclass(frozen=True)
class Deferring:
    """A step that neither reads nor writes the weights of some layers, nor the data.

    Its last arguments are the outputs of these layers. In place of their new weights it returns the
    gradients of these outputs.
    """

    run: Callable[..., Sequence[Tensor]]
    layers: tuple[Layer, ...]


class Pending:
    """The weights of one layer for a stack of clients, and the updates not yet added to them."""

    def __init__(self, layer: Layer, weights: Tensor, seen: Tensor, width: int) -> None:
        """Take the weights before the first step, and the data of all steps.

        Args:
            layer: Where the weights belong.
            weights: [clients, outputs, inputs]; never written to.
            seen: [clients, rows, inputs], `width` rows for each step.
            width: Rows per step.
        """
        self._layer, self._weights, self._seen, self._width = layer, weights, seen, width
        # W X' and not X W': matrix libraries are faster if the factor with few rows comes last.
        self._outputs = torch.bmm(weights, seen.mT).mT
        self._alike = torch.bmm(seen, seen.mT)
        self._back = seen.new_empty(self._outputs.shape)

    def outputs(self, step: int) -> Tensor:
        """Compute the outputs of the layer in a step, as if its weights were up to date."""
        now = self._rows(step)
        # Rows from this step on are not written yet, so only earlier ones may be read.
        first, before = self._outputs[:, now], slice(now.start)
        return torch.baddbmm(first, self._alike[:, now, before], self._back[:, before])

    def note(self, step: int, back: Tensor) -> None:
        """Keep the gradient of a step's outputs: [clients, outputs, width]."""
        torch.mul(back.mT, self._layer.number, out=self._back[:, self._rows(step)])

    def weights(self) -> Tensor:
        """Add the updates of all steps; every step must have been noted."""
        return torch.baddbmm(self._weights, self._back.mT, self._seen)

    def _rows(self, step: int) -> slice:
        return slice(step * self._width, (step + 1) * self._width)
