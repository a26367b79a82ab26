"""Optimizers made of others: one for each part of a state, and one that stays in an interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from motet._core.tree import State, drop, pick
from motet.errors import CapabilityError
from motet.optim import ExampleOptimizer, Optimizer


@dataclass(frozen=True)
class ByPart:
    """Steps the parameters called `names` by one optimizer, and the rest by another.

    A bound on the gradient norm holds for each part by itself.
    """

    special: Optimizer
    names: frozenset[str]
    rest: Optimizer

    def __post_init__(self) -> None:
        _refuse_own_gradient(self.special, self.rest)

    def init(self, params: State) -> tuple[Any, Any]:
        """Make the moments of both."""
        own, other = pick(params, self.names), drop(params, self.names)
        return self.special.init(own), self.rest.init(other)

    def step(
        self, grads: State, moments: tuple[Any, Any], params: State, rate: Tensor | float
    ) -> tuple[State, tuple[Any, Any]]:
        """Step both parts from the same gradients."""
        own, other = pick(params, self.names), drop(params, self.names)
        own, first = _step(self.special, pick(grads, own), moments[0], own, rate)
        other, second = _step(self.rest, pick(grads, other), moments[1], other, rate)
        return own | other, (first, second)


@dataclass(frozen=True)
class InUnitInterval:
    """Clips what another optimizer makes to [0, 1]: for mixtures and shares."""

    inner: Optimizer

    def __post_init__(self) -> None:
        _refuse_own_gradient(self.inner)

    def init(self, params: State) -> Any:
        """Make the other's moments."""
        return self.inner.init(params)

    def step(
        self, grads: State, moments: Any, params: State, rate: Tensor | float
    ) -> tuple[State, Any]:
        """Step, then clip."""
        stepped, moments = self.inner.step(grads, moments, params, rate)
        return {k: v.clamp(0, 1) for k, v in stepped.items()}, moments


def _refuse_own_gradient(*parts: Optimizer) -> None:
    for part in parts:
        # Nothing would ask it for its gradient, so it would step without noise.
        if isinstance(part, ExampleOptimizer):
            raise CapabilityError(
                f"{type(part).__name__} makes its gradients from single examples, so it cannot be "
                "a part of another optimizer; let it step everything."
            )


def _step(
    optimizer: Optimizer, grads: State, moments: Any, params: State, rate: Tensor | float
) -> tuple[State, Any]:
    return optimizer.step(grads, moments, params, rate) if params else (params, moments)
