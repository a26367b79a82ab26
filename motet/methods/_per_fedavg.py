"""Per-FedAvg: learn a model that is good after one gradient step of each client's own.

Fallah et al., "Personalized Federated Learning: A Meta-Learning Approach", NeurIPS 2020.
https://arxiv.org/abs/2002.07948
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from motet._core.aggregation.mean import Mean, Reduce
from motet._core.gradient import grad
from motet._core.keys import Key
from motet._core.tree import State, dot, tree_map
from motet._training.batching import Plan
from motet._training.fitting import fit
from motet.errors import RequestError
from motet.method import Card, ClientData
from motet.methods._bases.global_model import GlobalModel
from motet.optim import Optimizer, Sgd
from motet.task import Batch, Loss, Task

Variant = Literal["fo", "hf", "exact"]
EVALUATIONS = {"fo": 2.0 / 3, "hf": 4.0 / 3, "exact": 3.0 / 3}  # each on a third of the batch


@dataclass(frozen=True, kw_only=True)
class PerFedAvg(GlobalModel):
    """Minimises f_i(w - inner_lr grad f_i(w)), averaged over clients.

    Attributes:
        optimizer: Steps w; its lr is the paper's beta.
        variant: "fo" drops the second derivative, "hf" takes it by a finite difference, "exact"
            differentiates through the inner step.
        inner_lr: The step a client takes when it is served, the paper's alpha. 0 is FedAvg.
        delta: Width of the finite difference of "hf".
        adapt_steps: Full-batch steps of size `inner_lr` when a client is served.
        batch_size: Examples per step, divided among the independent batches D, D' and D''.

    Example:
        >>> import motet
        >>> motet.PerFedAvg(variant="hf").name
        'per-fedavg'
    """

    optimizer: Optimizer = Sgd(lr=0.1)
    variant: Variant = "hf"
    inner_lr: float = 0.05
    delta: float = 1e-3
    adapt_steps: int = 1
    batch_size: int | None = 48
    reduce: Reduce = Mean(weights="uniform")

    name: ClassVar[str] = "per-fedavg"
    tuned_phases: ClassVar[tuple[str, ...]] = ("adapt",)
    stateful: ClassVar[bool] = False
    card: ClassVar[Card] = Card(
        title="Per-FedAvg",
        paper="Fallah et al., NeurIPS",
        year=2020,
        link="https://arxiv.org/abs/2002.07948",
        idea="Learn a model that is good after one gradient step of each client's own.",
        shared="a model",
        private="the adapted copy, while it is served",
        down="1",
        up="1",
        new_client="takes one gradient step from the global model, like all clients",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.variant not in EVALUATIONS:
            raise RequestError(f'variant= is "fo", "hf" or "exact"; got {self.variant!r}.')

    @property
    def gradients(self) -> Mapping[str, float]:  # type: ignore[override]
        """Count the evaluations of the variant."""
        return {"train": EVALUATIONS[self.variant]}

    def check(self, task: Task, clients: Sequence[str]) -> list[str]:
        return ["per-fedavg: inner_lr=0 adapts nothing: FedAvg."] if self.inner_lr == 0 else []

    def adapt_plans(self) -> dict[str, Plan]:
        return {"adapt": Plan(steps=self.adapt_steps, batch_size=None, stream="adapt")}

    def init_client(self, task: Task, initial: State, key: Key) -> State:
        return {}

    def client_update(
        self, down: State, client: State, data: ClientData, task: Task
    ) -> tuple[State, State]:
        loss = MetaLoss(task, self.variant, self.inner_lr, self.delta)
        return fit(task, down, data["train"], self.optimizer, loss=loss), client

    def personalize(self, down: State, client: State, data: ClientData, task: Task) -> State:
        return fit(task, down, data["adapt"], Sgd(lr=self.inner_lr))

    def after_broadcast(self, down: State, client: State, task: Task) -> State:
        return down

    def after_local(self, down: State, up: State, client: State, task: Task) -> State:
        return up


@dataclass(frozen=True)
class MetaLoss:
    """The loss after an inner step, or a linear function with the variant's gradient."""

    task: Task
    variant: Variant
    inner_lr: float
    delta: float

    def __call__(self, state: State, batch: Batch) -> Loss:
        """Compute it on three independent parts of the batch."""
        inner, outer, third = thirds(batch)
        params = self.task.trainable(state)
        adapted = self._stepped(state, params, inner)
        loss = self.task.loss(state | adapted, outer)
        if self.variant == "exact":
            return loss
        estimate = self._gradient(state, adapted, outer)
        if self.variant == "hf":
            curvature = self._curvature(state, params, estimate, third)
            estimate = {k: estimate[k] - self.inner_lr * curvature[k] for k in estimate}
        surrogate = dot(tree_map(lambda g: g.detach(), estimate), params)
        return Loss(surrogate, loss.buffers)

    def _gradient(self, state: State, params: State, batch: Batch) -> State:
        slopes: State = grad(lambda p: self.task.loss(state | p, batch).value)(params)
        return slopes

    def _stepped(self, state: State, params: State, batch: Batch) -> State:
        slopes = self._gradient(state, params, batch)
        return {k: params[k] - self.inner_lr * slopes[k] for k in params}

    def _curvature(self, state: State, params: State, along: State, batch: Batch) -> State:
        """Multiply the second derivative by a direction, by a central difference."""
        ahead = {k: params[k] + self.delta * along[k] for k in params}
        behind = {k: params[k] - self.delta * along[k] for k in params}
        plus, minus = (self._gradient(state, p, batch) for p in (ahead, behind))
        return {k: (plus[k] - minus[k]) / (2 * self.delta) for k in params}


def thirds(batch: Batch) -> tuple[Batch, Batch, Batch]:
    """Deal a batch into three; a part without real examples borrows the first part's."""
    # Deviates: A batch is dealt into D, D' and D'' row by row.
    first = _every_third(batch, 0)
    return first, _or(_every_third(batch, 1), first), _or(_every_third(batch, 2), first)


def _every_third(batch: Batch, start: int) -> Batch:
    return Batch(batch.x[start::3], batch.y[start::3], batch.weight[start::3], batch.key)


def _or(part: Batch, first: Batch) -> Batch:
    size = part.weight.shape[0]
    if size == 0:
        return first
    real = part.weight.any()

    def choose(own: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return torch.where(real, own, other[:size])

    return Batch(
        choose(part.x, first.x),
        choose(part.y, first.y),
        choose(part.weight, first.weight),
        part.key,
    )
