"""Penalties that many methods add to the loss: a pull towards an anchor, and a linear tilt.

FedProx, Ditto, pFedMe, MR-MTL and FedAMP pull; SCAFFOLD tilts; FedDyn does both. They are classes
rather than closures, so that equal objectives compare equal and tensors come through `given`.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet._core.tree import State, dot, pick, squared_distance
from motet.task import Batch, Loss, Task


@dataclass(frozen=True)
class Pulled:
    """The loss plus strength / 2 * ||w - anchor||^2, over the names the anchor has."""

    task: Task
    strength: float

    def __call__(self, state: State, batch: Batch, anchor: State) -> Loss:
        """Compute it; buffers are never pulled."""
        anchor = self.task.trainable(anchor)
        distance = squared_distance(pick(state, anchor), anchor)
        return self.task.loss(state, batch) + self.strength / 2 * distance


@dataclass(frozen=True)
class Tilted:
    """The loss plus <slope, w>, over the names the slope has."""

    task: Task

    def __call__(self, state: State, batch: Batch, slope: State) -> Loss:
        """Compute it: the gradient is the loss's plus the slope."""
        return self.task.loss(state, batch) + dot(pick(state, slope), slope)


@dataclass(frozen=True)
class TiltedAndPulled:
    """The loss plus <slope, w> plus strength / 2 * ||w - anchor||^2."""

    task: Task
    strength: float

    def __call__(self, state: State, batch: Batch, slope: State, anchor: State) -> Loss:
        """Compute it."""
        tilt = dot(pick(state, slope), slope)
        return Pulled(self.task, self.strength)(state, batch, anchor) + tilt
