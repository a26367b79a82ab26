"""DP-SGD: gradients example by example, each clipped, the sum noised.

Abadi et al., "Deep Learning with Differential Privacy", CCS 2016. https://arxiv.org/abs/1607.00133
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.func import vmap

from motet._core import tree
from motet._core.gradient import grad
from motet._core.tree import State
from motet._training.batching import NO_EXAMPLE
from motet.errors import RequestError
from motet.optim import ExampleOptimizer, Optimizer, Sgd
from motet.privacy._philox import draw_words, normal
from motet.task import Batch

Scored = Callable[[State, Batch], tuple[Tensor, State]]  # the loss, and updated buffers
AT_ONCE = 32  # examples whose gradients are in memory side by side, of each client of a stack
DROPOUT = 0  # stream of a step's key that the examples' own keys come from; noise has the others


@dataclass(frozen=True, kw_only=True)
class Private:
    """Hands an optimizer noisy gradients: no example moves their sum by more than `clip`.

    Works in any method whose local training steps by `optimizer=`. What that guarantees depends on
    the method; `motet.privacy.guarantee_of` says it.

    Attributes:
        inner: Steps on the noisy gradients.
        clip: C, the bound on the norm of one example's gradient, over all trained parameters.
        noise: sigma, the noise multiplier: the sum gets normal noise of standard deviation
            sigma * C. 0 is no noise, and no guarantee.
        batch_size: The expected batch size, which the noisy sum is divided by, also at clients that
            have fewer examples. The same as the method's.
        sampling: "poisson" takes every example with the same chance in every step, as the
            guarantee assumes; "shuffle" walks batches of a fixed size, without a guarantee.
        delta: The chance, for which no promise is made; below 1 / (examples of a client).

    Example:
        >>> import motet
        >>> method = motet.FedAvg(optimizer=motet.Private(clip=1.0, noise=1.1), batch_size=32)
        >>> motet.privacy.guarantee_of(method).leaves
        'the trained model'
    """

    inner: Optimizer = Sgd(lr=0.1)
    clip: float = 1.0
    noise: float = 1.0
    batch_size: int = 32
    sampling: Literal["poisson", "shuffle"] = "poisson"
    delta: float = 1e-5

    def __post_init__(self) -> None:
        if not self.clip > 0:
            raise RequestError(f"Private(clip=) must be above 0; got {self.clip}.", option="clip")
        if not (0 <= self.noise < math.inf):
            raise RequestError(f"Private(noise=) is 0 or more, and finite; got {self.noise}.")
        if self.noise and math.isinf(self.clip):
            raise RequestError(
                "Private(clip=inf) bounds nothing, so no noise can hide an example; give a finite "
                "clip=, or noise=0."
            )
        if self.batch_size < 1:
            raise RequestError(f"Private(batch_size=) is 1 or more; got {self.batch_size}.")
        if self.sampling not in ("poisson", "shuffle"):
            raise RequestError(
                f'Private(sampling=) is "poisson" or "shuffle"; got {self.sampling!r}.'
            )
        if not 0 < self.delta < 1:
            raise RequestError(
                f"Private(delta=) must be between 0 and 1; got {self.delta}.", option="delta"
            )
        if isinstance(self.inner, ExampleOptimizer):
            raise RequestError("Private(inner=) is private already; wrap an ordinary optimizer.")

    def init(self, params: State) -> Any:
        """Make the moments of the inner optimizer.

        Args:
            params: The parameters that are trained.
        """
        return self.inner.init(params)

    def step(
        self, grads: State, moments: Any, params: State, rate: Tensor | float = 1.0
    ) -> tuple[State, Any]:
        """Take a step of the inner optimizer along what `gradient` returned.

        Args:
            grads: Their gradients.
            moments: What `init` or the last step returned.
            params: The parameters that are trained.
            rate: Factor on the learning rate, set by the schedule.
        """
        return self.inner.step(grads, moments, params, rate)

    def gradient(self, objective: Scored, params: State, batch: Batch) -> tuple[State, State]:
        """Return the noisy gradient, and no buffers: what a pass writes there has no noise.

        Args:
            objective: `(params, batch) -> (loss, updated buffers)`.
            params: The parameters that are trained.
            batch: The batch of this step.
        """

        def one(x: Tensor, y: Tensor, weight: Tensor, key: Tensor) -> State:
            alone = Batch(x[None], y[None], weight[None], key)
            slope = grad(lambda trained: objective(trained, alone)[0])(params)
            return clipped(slope, self.clip, counts=weight > NO_EXAMPLE)

        summed = tree.zeros_like(params)
        columns = (batch.x, batch.y, batch.weight, _example_keys(batch))
        for some in zip(*(torch.split(c, AT_ONCE) for c in columns), strict=True):
            slopes = vmap(one)(*some)  # [examples, ...] each
            summed = {name: total + slopes[name].sum(0) for name, total in summed.items()}
        noisy = self._noised(summed, batch.key) if self.noise else summed
        return {name: total / self.batch_size for name, total in noisy.items()}, {}

    def _noised(self, summed: State, key: Tensor) -> State:
        deviation = self.noise * self.clip
        stream = {name: number for number, name in enumerate(sorted(summed), DROPOUT + 1)}
        return {
            name: (total + deviation * normal(key, stream[name], total.shape)).to(total.dtype)
            for name, total in summed.items()
        }


def clipped(slope: State, limit: float, *, counts: Tensor) -> State:
    """Scale one example's gradient to the bound, or to 0 if it does not count or is no number."""
    norm = torch.stack([g.square().sum() for g in slope.values()]).sum().sqrt()
    factor = (limit / (norm + 1e-6)).clamp(max=1.0)
    usable = counts & norm.isfinite()
    return {name: torch.where(usable, g * factor, 0.0) for name, g in slope.items()}


def _example_keys(batch: Batch) -> Tensor:
    """Give every example a key of its own, for dropout."""
    first, second, _, _ = draw_words(batch.key, DROPOUT, len(batch.weight))
    return (first << 31) | (second >> 1)


def private_optimizer(method: Any) -> Private | None:
    """Return the optimizer of a method, if it is a private one."""
    return method.optimizer if isinstance(method.optimizer, Private) else None
