"""Gradient noise on your own data, and whether it favours alternating or simultaneous updates.

Pillutla et al. bound both FedAlt and FedSim by noise terms (ICML 2022,
https://arxiv.org/abs/2204.03809). This module estimates the terms at the current point of a run
and evaluates the condition under which FedAlt has the smaller bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from motet._core import tree
from motet._core.gradient import grad
from motet._core.keys import Key
from motet._core.sampling import cohort_size
from motet._core.tree import State
from motet._engine.federation import Run
from motet._engine.scoring import with_examples
from motet._training.batching import Plan
from motet.analysis._curvature import block_norm
from motet.errors import CapabilityError
from motet.methods._bases.partial_sharing import PartialSharing
from motet.task import Batch, Task


@dataclass(frozen=True)
class Noise:
    """The terms of the theorem at one point. `str` returns the conclusion in a sentence.

    Attributes:
        sigma_u2: Variance of a stochastic gradient of the shared part, mean over clients.
        sigma_v2: The same for the personal part.
        delta2: Gradient diversity: variance of the full gradients of the shared part over clients.
        l_u: Curvature in the shared part, the maximum over clients.
        l_v: Curvature in the personal part.
        l_uv: Curvature between the parts: how a change of one changes the gradient of the other.
        cohort: Clients per round, m.
        clients: Number of clients, n.

    Example:
        >>> about = {"sigma_u2": 1.0, "sigma_v2": 2.0, "delta2": 0.5, "cohort": 10, "clients": 100}
        >>> terms = Noise(l_u=1.0, l_v=2.0, l_uv=1.0, **about)
        >>> terms.chi2, terms.personal_side
        (0.5, 0.8)
    """

    sigma_u2: float
    sigma_v2: float
    delta2: float
    l_u: float
    l_v: float
    l_uv: float
    cohort: int
    clients: int

    @property
    def chi2(self) -> float:
        """Cross-dependence of the two parts: 0 if the loss is a sum of one term per part."""
        return self.l_uv**2 / (self.l_u * self.l_v)

    @property
    def personal_side(self) -> float:
        """Left side of the condition: (sigma_v^2 / L_v) (1 - 2m/n)."""
        return self.sigma_v2 / self.l_v * (1 - 2 * self.cohort / self.clients)

    @property
    def shared_side(self) -> float:
        """Right side: sigma_u^2 / (m L_u) + (delta^2 / (m L_u)) (1 - m/n)."""
        among_clients = self.delta2 * (1 - self.cohort / self.clients)
        return (self.sigma_u2 + among_clients) / (self.cohort * self.l_u)

    @property
    def favours(self) -> Literal["FedAlt", "FedSim"]:
        """The method with the smaller bound."""
        return "FedAlt" if self.personal_side < self.shared_side else "FedSim"

    @property
    def gain(self) -> float:
        """The factor (1 + chi^2)^(1/2) by which FedAlt's bound is smaller when it is favoured."""
        return math.sqrt(1 + self.chi2)

    def __str__(self) -> str:
        by = f" by a factor of {self.gain:.3g}" if self.favours == "FedAlt" else ""
        sign = "<" if self.favours == "FedAlt" else ">="
        return (
            f"with {self.cohort} of {self.clients} clients per round the theorem favours "
            f"{self.favours}{by}: (sigma_v^2/L_v)(1 - 2m/n) = {self.personal_side:.3g} {sign} "
            f"{self.shared_side:.3g} = sigma_u^2/(m L_u) + (delta^2/(m L_u))(1 - m/n), where "
            f"sigma_u^2 = {self.sigma_u2:.3g}, sigma_v^2 = {self.sigma_v2:.3g}, "
            f"delta^2 = {self.delta2:.3g}, L_u = {self.l_u:.3g}, L_v = {self.l_v:.3g}, "
            f"chi^2 = {self.chi2:.3g}."
        )


def noise(
    run: Run,
    *,
    clients: Sequence[str] | None = None,
    epochs: int = 1,
    examples: int = 64,
    iterations: int = 10,
) -> Noise:
    """Estimate the noise terms at the current point of a run, from training data only.

    With a run of 0 rounds this is the initial point. The run is not changed.

    Args:
        run: A run of FedAlt, FedSim or another method that averages one part of the model.
        clients: Clients to include; None means all.
        epochs: Passes over each client's data for the variance of its stochastic gradients.
        examples: Training examples per client for the curvature.
        iterations: Steps of the power iteration for the curvature; each costs about as much as 20
            gradients of those examples.

    Returns:
        The terms of each client and their means.

    Raises:
        CapabilityError: The method does not average a part of the model.

    Example:
        >>> import motet
        >>> world = motet.testing.ragged()
        >>> run = motet.run(motet.FedAlt(), world.task, world.data, rounds=0, backend="serial")
        >>> terms = noise(run, clients=["few"], examples=2, iterations=1)
        >>> terms.sigma_u2 >= 0, terms.clients
        (True, 6)
    """
    parts = _parts(run)
    federation = run.setting.federation
    asked = with_examples(clients or federation.clients, lambda c: federation.size(c, "train"))
    seen = [_gradients(run, client, parts, epochs) for client in asked]
    bent = [_curvature(run, client, parts, examples, iterations) for client in asked]
    l_u, l_v, l_uv = (max(values) for values in zip(*bent, strict=True))
    if not (l_u > 0 and l_v > 0):
        raise CapabilityError(
            f"the loss is flat here (L_u = {l_u:.3g}, L_v = {l_v:.3g}), so the theorem does not "
            "apply; run some rounds first."
        )
    total = len(federation.clients)
    return Noise(
        sigma_u2=_mean([one.sigma_u2 for one in seen]),
        sigma_v2=_mean([one.sigma_v2 for one in seen]),
        delta2=_diversity([one.full_u for one in seen]),
        l_u=l_u,
        l_v=l_v,
        l_uv=l_uv,
        cohort=cohort_size(run.cohort, total),
        clients=total,
    )


class _Parts(NamedTuple):
    """Names of the trained parameters of each part."""

    u: frozenset[str]
    v: frozenset[str]


def _parts(run: Run) -> _Parts:
    method, task = run.setting.method, run.setting.task
    if not isinstance(method, PartialSharing):
        raise CapabilityError(
            f"the noise terms need a shared and a personal part, which {method.name} does not "
            "have; use a run of FedAlt or FedSim."
        )
    v = method.private_names(task) & task.parameters
    u = task.parameters - v
    if not u or not v:
        missing = "shared" if v else "personal"
        raise CapabilityError(
            f"the {missing} part of this run is empty, so there is nothing to compare; choose "
            "another personal=."
        )
    return _Parts(u, v)


class _Gradients(NamedTuple):
    """Statistics of one client's stochastic gradients."""

    full_u: Tensor  # the mean over an epoch: the full gradient of the shared part
    sigma_u2: float
    sigma_v2: float


def _gradients(run: Run, client: str, parts: _Parts, epochs: int) -> _Gradients:
    setting, task = run.setting, run.setting.task
    state = run.personal(client, point="after_broadcast")
    plan = Plan(epochs=epochs, batch_size=setting.method.batch_size, stream="noise")
    batches = setting.data(client, {"noise": plan}, run.rounds_done)["noise"]
    u, v = _Spread(), _Spread()
    for batch in batches.steps():
        slope = _slope(task, state, batch)
        u.add(_flat(slope, parts.u), float(batch.weight.sum()))
        v.add(_flat(slope, parts.v), float(batch.weight.sum()))
    return _Gradients(u.mean, u.variance, v.variance)


def _slope(task: Task, state: State, batch: Batch) -> State:
    """Compute a stochastic gradient as in training: with dropout and batch statistics."""
    params = task.trainable(state)
    fixed = tree.drop(state, params)

    def loss(params: State) -> Tensor:
        return task.loss(fixed | params, batch).value

    slope: State = grad(loss)(params)
    return slope


@dataclass
class _Spread:
    """Running mean and variance of vectors, in double precision."""

    weighted: Tensor | float = 0.0
    plain: Tensor | float = 0.0
    squares: float = 0.0
    weight: float = 0.0
    seen: int = 0

    def add(self, vector: Tensor, weight: float) -> None:
        self.weighted = self.weighted + weight * vector
        self.plain = self.plain + vector
        self.squares += float(vector @ vector)
        self.weight += weight
        self.seen += 1

    @property
    def mean(self) -> Tensor:
        """The mean, weighted by batch size: exact, because an epoch visits each example once."""
        return torch.as_tensor(self.weighted) / max(self.weight, 1.0)

    @property
    def variance(self) -> float:
        """The mean over steps of the squared distance from the mean."""
        mean, steps = self.mean, max(self.seen, 1)
        crossed = 2 * mean @ torch.as_tensor(self.plain) / steps
        return max(float(self.squares / steps - crossed + mean @ mean), 0.0)


def _flat(state: State, names: frozenset[str]) -> Tensor:
    return torch.cat([state[name].flatten() for name in sorted(names)]).double()


def _diversity(full: Sequence[Tensor]) -> float:
    stacked = torch.stack(list(full))
    return float((stacked - stacked.mean(0)).square().sum(1).mean())


def _curvature(
    run: Run, client: str, parts: _Parts, examples: int, iterations: int
) -> tuple[float, float, float]:
    """Compute L_u, L_v and L_uv of one client's loss."""
    task, key = run.setting.task, run.setting.key.fold("noise", client)
    state = run.personal(client, point="after_broadcast")
    batch = _some_examples(run, client, examples, key)
    fixed = tree.drop(state, parts.u | parts.v)

    def loss(*uv: State) -> Tensor:
        return task.evaluation_loss(fixed | uv[0] | uv[1], batch)

    point = tree.pick(state, parts.u), tree.pick(state, parts.v)
    norms = [block_norm(loss, point, a, b, key, iterations) for a, b in ((0, 0), (1, 1), (0, 1))]
    return norms[0], norms[1], norms[2]


def _some_examples(run: Run, client: str, examples: int, key: Key) -> Batch:
    x, y = run.setting.federation.examples(client, "train")
    chosen = torch.from_numpy(key.numpy().permutation(len(y))[:examples])
    return Batch(x[chosen], y[chosen], torch.ones(len(chosen)), torch.tensor(0))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
