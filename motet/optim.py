"""Optimizers as pure functions: `(grads, moments, params) -> (params, moments)`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import torch
from torch import Tensor

from motet._core import tree
from motet._core.tree import State
from motet.errors import RequestError

__all__ = ["Adagrad", "Adam", "ExampleOptimizer", "Optimizer", "Sgd", "Yogi"]

LEAST_EPS = 1e-9  # from here on, the square root of the least normal number changes nothing


class Optimizer(Protocol):
    """Two pure functions. `rate` is a factor on the learning rate, set by the round's schedule.

    Example:
        >>> import torch
        >>> optimizer: Optimizer = Sgd(lr=0.5)
        >>> params = {"w": torch.tensor([1.0])}
        >>> optimizer.step({"w": torch.tensor([1.0])}, optimizer.init(params), params, 1.0)[0]
        {'w': tensor([0.5000])}
    """

    def init(self, params: State) -> Any:
        """Make the moments for these parameters.

        Args:
            params: The parameters that are trained.

        Returns:
            The moments before the first step.
        """
        ...

    def step(
        self, grads: State, moments: Any, params: State, rate: Tensor | float
    ) -> tuple[State, Any]:
        """Take one step.

        Args:
            grads: Their gradients.
            moments: What `init` or the last step returned.
            params: The parameters that are trained.
            rate: Factor on the learning rate, set by the schedule.

        Returns:
            The new parameters and the new moments.
        """
        ...


@runtime_checkable
class ExampleOptimizer(Optimizer, Protocol):
    """An optimizer that computes its own gradient from the examples of a batch.

    Training asks it for the gradient instead of differentiating the loss of the whole batch.
    Optimizers made of others refuse it: they would skip `gradient`, and with it the noise of
    DP-SGD.

    Example:
        >>> import motet
        >>> isinstance(motet.Private(), ExampleOptimizer), isinstance(Sgd(lr=0.1), ExampleOptimizer)
        (True, False)
    """

    def gradient(
        self, objective: Callable[..., tuple[Tensor, State]], params: State, batch: Any
    ) -> tuple[State, State]:
        """Return the gradient, and the buffers that the forward pass updated.

        Args:
            objective: `(params, batch) -> (loss, updated buffers)`, for any batch.
            params: The trained parameters.
            batch: The `motet.task.Batch` of this step.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Sgd:
    """Stochastic gradient descent.

    Attributes:
        lr: Step size.
        momentum: Heavy-ball momentum; the velocity starts at 0 in every phase of local work.
        weight_decay: L2 penalty added to the gradient, of trained parameters only.
        nesterov: Nesterov's momentum.
        clip: Bound on the norm of the gradient, over the parameters this phase trains.

    Example:
        >>> Sgd(lr=0.1, momentum=0.9).momentum
        0.9
    """

    lr: float = 0.1
    momentum: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False
    clip: float | None = None

    def __post_init__(self) -> None:
        _check_nonnegative(self, "lr", "momentum", "weight_decay", "clip")

    def init(self, params: State) -> State:
        """Make the moments for these parameters.

        Args:
            params: The parameters that are trained.
        """
        return tree.zeros_like(params) if self.momentum else {}

    def step(
        self, grads: State, moments: State, params: State, rate: Tensor | float = 1.0
    ) -> tuple[State, State]:
        """Take one step; return the new parameters and the new moments.

        Args:
            grads: Their gradients.
            moments: What `init` or the last step returned.
            params: The parameters that are trained.
            rate: Factor on the learning rate, set by the schedule.
        """
        grads = _decayed(_clipped(grads, self.clip), params, self.weight_decay)
        if self.momentum:
            moments = {k: self.momentum * moments[k] + grads[k] for k in grads}
            looked_ahead = {k: grads[k] + self.momentum * moments[k] for k in grads}
            grads = looked_ahead if self.nesterov else moments
        return {k: params[k] - _like(self.lr * rate, params[k]) * grads[k] for k in params}, moments


class AdamMoments(NamedTuple):
    """Adam's running averages and its step counter."""

    first: State
    second: State
    taken: Tensor


@dataclass(frozen=True, kw_only=True)
class Adam:
    """Adam, as `torch.optim.Adam`; without bias correction and with s0 = eps^2 it is FedAdam's.

    Attributes:
        lr: Step size.
        betas: Decay of the first and second moment.
        eps: Added to the denominator; called tau where it makes a server adaptive.
        weight_decay: L2 penalty added to the gradient.
        clip: Bound on the norm of the gradient.
        bias_correction: Whether to divide the moments by what they lack in the first steps.
        s0: Where the second moment starts.

    Example:
        >>> Adam(lr=0.001).lr
        0.001
    """

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    clip: float | None = None
    bias_correction: bool = True
    s0: float = 0.0

    def __post_init__(self) -> None:
        _check_nonnegative(self, "lr", "eps", "weight_decay", "clip", "s0")

    def init(self, params: State) -> AdamMoments:
        """Make the moments for these parameters.

        Args:
            params: The parameters that are trained.
        """
        # Counted in double precision: 1 - 0.999 has only four correct digits in single.
        taken = torch.zeros((), dtype=torch.float64)
        return AdamMoments(tree.zeros_like(params), _filled(params, self.s0), taken)

    def step(
        self, grads: State, moments: AdamMoments, params: State, rate: Tensor | float = 1.0
    ) -> tuple[State, AdamMoments]:
        """Take one step; return the new parameters and the new moments.

        Args:
            grads: Their gradients.
            moments: What `init` or the last step returned.
            params: The parameters that are trained.
            rate: Factor on the learning rate, set by the schedule.
        """
        grads = _decayed(_clipped(grads, self.clip), params, self.weight_decay)
        b1, b2 = self.betas
        first = {k: b1 * moments.first[k] + (1 - b1) * grads[k] for k in grads}
        second = {k: self.second_moment(moments.second[k], grads[k].square()) for k in grads}
        taken = moments.taken + 1
        size: Tensor | float = self.lr * rate
        spread: Tensor | float = 1.0
        if self.bias_correction:
            size, spread = size / (1 - b1**taken), (1 - b2**taken).sqrt()
        stepped = {
            k: _adaptive_step(params[k], first[k], second[k], size, spread, self.eps)
            for k in params
        }
        return stepped, AdamMoments(first, second, taken)

    def second_moment(self, old: Tensor, square: Tensor) -> Tensor:
        """Return the running mean of squared gradients after a step.

        Args:
            old: The mean so far.
            square: The squared gradient.
        """
        b2 = self.betas[1]
        return b2 * old + (1 - b2) * square


@dataclass(frozen=True, kw_only=True)
class Yogi(Adam):
    """Adam whose second moment moves by at most (1 - beta_2) g^2 a step, up or down.

    Zaheer et al., "Adaptive Methods for Nonconvex Optimization", NeurIPS 2018. A large second
    moment is forgotten slowly, so that rare gradients do not make the steps jump.

    Attributes:
        lr: Step size.
        betas: Decay of the first moment, and how fast the second one moves.
        eps: Added to the denominator.
        weight_decay: L2 penalty added to the gradient.
        clip: Bound on the norm of the gradient.
        bias_correction: Whether to divide the moments by what they lack in the first steps.
        s0: Where the second moment starts.

    Example:
        >>> Yogi(lr=0.01).lr
        0.01
    """

    lr: float = 1e-2
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-3
    bias_correction: bool = False
    s0: float = 1e-6

    def second_moment(self, old: Tensor, square: Tensor) -> Tensor:
        """Move towards the squared gradient by a step that does not depend on the old value."""
        return old - (1 - self.betas[1]) * square * torch.sign(old - square)


class AdagradMoments(NamedTuple):
    """Adagrad's sum of squared gradients, and the running average if it has momentum."""

    first: State
    second: State


@dataclass(frozen=True, kw_only=True)
class Adagrad:
    """Adagrad, as `torch.optim.Adagrad`: steps shrink with all gradients ever seen.

    Attributes:
        lr: Step size.
        beta: Decay of the first moment; 0 steps along the gradient itself.
        eps: Added to the denominator.
        weight_decay: L2 penalty added to the gradient.
        clip: Bound on the norm of the gradient.
        s0: Where the sum of squares starts.

    Example:
        >>> Adagrad(lr=0.1).lr
        0.1
    """

    lr: float = 1e-2
    beta: float = 0.0
    eps: float = 1e-10
    weight_decay: float = 0.0
    clip: float | None = None
    s0: float = 0.0

    def __post_init__(self) -> None:
        _check_nonnegative(self, "lr", "beta", "eps", "weight_decay", "clip", "s0")

    def init(self, params: State) -> AdagradMoments:
        """Make the moments for these parameters.

        Args:
            params: The parameters that are trained.
        """
        first = tree.zeros_like(params) if self.beta else {}
        return AdagradMoments(first, _filled(params, self.s0))

    def step(
        self, grads: State, moments: AdagradMoments, params: State, rate: Tensor | float = 1.0
    ) -> tuple[State, AdagradMoments]:
        """Take one step; return the new parameters and the new moments.

        Args:
            grads: Their gradients.
            moments: What `init` or the last step returned.
            params: The parameters that are trained.
            rate: Factor on the learning rate, set by the schedule.
        """
        grads = _decayed(_clipped(grads, self.clip), params, self.weight_decay)
        second = {k: moments.second[k] + grads[k].square() for k in grads}
        first = moments.first
        if self.beta:
            first = {k: self.beta * first[k] + (1 - self.beta) * grads[k] for k in grads}
        along, size = first or grads, self.lr * rate
        stepped = {
            k: _adaptive_step(params[k], along[k], second[k], size, 1.0, self.eps) for k in params
        }
        return stepped, AdagradMoments(first, second)


def _adaptive_step(
    param: Tensor,
    mean: Tensor,
    square: Tensor,
    size: Tensor | float,
    spread: Tensor | float,
    eps: float,
) -> Tensor:
    # mean / (sqrt(square) / spread + eps), with the spread taken out of the fraction: it is small,
    # and everything else is as large as the parameters.
    root = _normal(square, eps).sqrt() + _like(eps * spread, param)
    return param - _like(size * spread, param) * (mean / root)


def _normal(square: Tensor, eps: float) -> Tensor:
    # Square roots of zeros and subnormal numbers take processors many times as long as others, and
    # weights behind dark pixels or dead units have nothing else. Beside eps, the root of the least
    # normal number is lost in rounding.
    return square.clamp_min(torch.finfo(square.dtype).tiny) if eps >= LEAST_EPS else square


def _filled(params: State, value: float) -> State:
    return {k: torch.full_like(p, value) for k, p in params.items()}


def _like(number: Tensor | float, param: Tensor) -> Tensor | float:
    """Give a number the parameter's type: a double would turn single precision into double."""
    return number.to(param.dtype) if isinstance(number, Tensor) else number


def _clipped(grads: State, limit: float | None) -> State:
    if limit is None:
        return grads
    norm = torch.stack([g.square().sum() for g in grads.values()]).sum().sqrt()
    factor = (limit / (norm + 1e-6)).clamp(max=1.0)
    return {k: g * factor for k, g in grads.items()}


def _decayed(grads: State, params: State, decay: float) -> State:
    return {k: g + decay * params[k] for k, g in grads.items()} if decay else grads


def _check_nonnegative(optimizer: Any, *fields: str) -> None:
    for name in fields:
        value = cast("float | None", getattr(optimizer, name))
        if value is not None and not value >= 0:
            raise RequestError(
                f"{type(optimizer).__name__}({name}=) must be 0 or more; got {value}.", option=name
            )
