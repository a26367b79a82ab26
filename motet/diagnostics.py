"""Noise on a user's own data, and whether it calls for alternating or simultaneous updates.

Pillutla et al. bound both FedAlt and FedSim by noise terms (ICML 2022,
https://arxiv.org/abs/2204.03809). Here the terms are estimated where a run stands, and put into
the condition under which FedAlt's bound is the smaller one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from motet import tree
from motet.curvature import block_norm
from motet.errors import CapabilityError
from motet.evaluate import with_examples
from motet.federation import Run
from motet.gradient import grad
from motet.keys import Key
from motet.methods.partial import PartialSharing
from motet.plans import Plan
from motet.sampling import cohort_size
from motet.task import Batch, Task
from motet.tree import State


@dataclass(frozen=True)
class Noise:
    """The terms of the theorem at one point. `print` gives its verdict in a sentence.

    Attributes:
        sigma_u2: Variance of a stochastic gradient of the shared part, mean over clients.
        sigma_v2: The same of the personal part.
        delta2: Gradient diversity: how far clients' full gradients of the shared part are apart.
        l_u: Curvature in the shared part, the largest over clients.
        l_v: Curvature in the personal part.
        l_uv: How much a change of one part changes the other's gradient.
        cohort: Clients per round, m.
        clients: All clients, n.
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
        """Cross-dependence of the two parts: 0 if the loss is a sum of one term in each."""
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
        """The method whose bound is the smaller one."""
        return "FedAlt" if self.personal_side < self.shared_side else "FedSim"

    @property
    def gain(self) -> float:
        """The factor (1 + chi^2)^(1/2) by which FedAlt's bound is better where it is favoured."""
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
    """Estimate the noise terms at the current point of a run, from training data alone.

    A run of 0 rounds measures the start. Nothing in the run changes.

    Args:
        run: A run of FedAlt, FedSim or another method that averages one part of the model.
        clients: Whom to ask; everybody if None.
        epochs: Passes over each client's data for the variance of its stochastic gradients.
        examples: Training examples per client for the curvature.
        iterations: Steps of the power iteration for the curvature; each costs about as much as 20
            gradients of those examples.
    """
    parts = _parts(run)
    federation = run.setting.federation
    asked = with_examples(clients or federation.clients, lambda c: federation.size(c, "train"))
    seen = [_gradients(run, client, parts, epochs) for client in asked]
    bent = [_curvature(run, client, parts, examples, iterations) for client in asked]
    l_u, l_v, l_uv = (max(values) for values in zip(*bent, strict=True))
    if not (l_u > 0 and l_v > 0):
        raise CapabilityError(
            f"the loss is flat here (L_u = {l_u:.3g}, L_v = {l_v:.3g}), so the theorem says "
            "nothing; run some rounds first."
        )
    everybody = len(federation.clients)
    return Noise(
        sigma_u2=_mean([one.sigma_u2 for one in seen]),
        sigma_v2=_mean([one.sigma_v2 for one in seen]),
        delta2=_diversity([one.full_u for one in seen]),
        l_u=l_u,
        l_v=l_v,
        l_uv=l_uv,
        cohort=cohort_size(run.cohort, everybody),
        clients=everybody,
    )


class _Parts(NamedTuple):
    """Names of the trained parameters of each part."""

    u: frozenset[str]
    v: frozenset[str]


def _parts(run: Run) -> _Parts:
    method, task = run.setting.method, run.setting.task
    if not isinstance(method, PartialSharing):
        raise CapabilityError(
            f"the noise terms are about a shared and a personal part, which {method.name} does not "
            "have; ask about a run of FedAlt or FedSim."
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
    """What one client's stochastic gradients look like."""

    full_u: Tensor  # the mean over an epoch: the full gradient of the shared part
    sigma_u2: float
    sigma_v2: float


def _gradients(run: Run, client: str, parts: _Parts, epochs: int) -> _Gradients:
    setting, task = run.setting, run.setting.task
    state = run.personal(client, point="after_broadcast")
    plan = Plan(epochs=epochs, batch_size=setting.method.batch_size, stream="noise")
    batches = setting.data(client, {"noise": plan}, run.finished)["noise"]
    u, v = _Spread(), _Spread()
    for batch in batches.steps():
        slope = _slope(task, state, batch)
        u.add(_flat(slope, parts.u), float(batch.weight.sum()))
        v.add(_flat(slope, parts.v), float(batch.weight.sum()))
    return _Gradients(u.mean, u.variance, v.variance)


def _slope(task: Task, state: State, batch: Batch) -> State:
    """Take a stochastic gradient as training takes it: with dropout and batch statistics."""
    params = task.trainable(state)
    fixed = tree.drop(state, params)

    def loss(params: State) -> Tensor:
        return task.loss(fixed | params, batch).value

    slope: State = grad(loss)(params)
    return slope


@dataclass
class _Spread:
    """Mean and variance of vectors that come one at a time, in double precision."""

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
        """The mean, each batch counted by its examples: exact, since an epoch sees each once."""
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
    """Find L_u, L_v and L_uv of one client's loss."""
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
