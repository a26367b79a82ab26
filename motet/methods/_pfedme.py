"""pFedMe: personal models are proximal points of local copies of the global model.

Dinh et al., "Personalized Federated Learning with Moreau Envelopes", NeurIPS 2020.
https://arxiv.org/abs/2006.08848
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from motet._core.aggregation.mean import Mean, Reduce
from motet._core.gradient import grad_with_aux
from motet._core.tree import State, squared_distance, tree_map
from motet._training.batching import Plan
from motet._training.fitting import fit
from motet._training.penalties import Pulled
from motet.errors import RequestError
from motet.method import Card, ClientData
from motet.methods._bases.global_model import GlobalModel
from motet.optim import Optimizer, Sgd
from motet.task import Batch, Loss, Task


@dataclass(frozen=True, kw_only=True)
class PFedMe(GlobalModel):
    """Local steps w <- w - lr lam (w - theta), theta ~ argmin f(theta) + lam/2 ||theta - w||^2.

    Attributes:
        optimizer: Steps w; its lr is the paper's eta.
        lam: Strength of the envelope. Small is nearly local, large is nearly FedAvg.
        inner_steps: K, gradient steps for theta, all on one batch, started from w.
        inner_lr: Their step size, the paper's delta.

    Example:
        >>> import motet
        >>> motet.PFedMe(lam=15.0).name
        'pfedme'
    """

    optimizer: Optimizer = Sgd(lr=0.05)
    lam: float = 15.0
    inner_steps: int = 5
    inner_lr: float = 0.05
    reduce: Reduce = Mean(weights="uniform")

    name: ClassVar[str] = "pfedme"
    card: ClassVar[Card] = Card(
        title="pFedMe",
        paper="Dinh et al., NeurIPS",
        year=2020,
        link="https://arxiv.org/abs/2006.08848",
        idea="Personal models are proximal points of local copies of the global model.",
        shared="a model",
        private="the personal model theta",
        down="1",
        up="1",
        new_client="takes the proximal point of the global model on its own data",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.lam > 0 or self.inner_steps < 1:
            raise RequestError(
                "PFedMe needs lam above 0 and at least one inner step, or the global model never "
                f"moves; got lam={self.lam} and inner_steps={self.inner_steps}."
            )

    @property
    def gradients(self) -> Mapping[str, float]:  # type: ignore[override]
        """Count the inner steps."""
        return {"train": float(self.inner_steps), "personal": float(self.inner_steps)}

    def plans(self) -> dict[str, Plan]:
        # One more step, for the personal model at the end of local work.
        return super().plans() | {"personal": Plan(steps=1, batch_size=self.batch_size)}

    def adapt_plans(self) -> dict[str, Plan]:
        return {"personal": Plan(steps=1, batch_size=None)}

    def check(self, task: Task, clients: Sequence[str]) -> list[str]:
        if self.inner_lr * self.lam < 2:
            return []
        return [
            f"pfedme: inner_lr * lam = {self.inner_lr * self.lam:g} is 2 or more, so the inner "
            "steps diverge; take a smaller inner_lr."
        ]

    def client_update(
        self, down: State, client: State, data: ClientData, task: Task
    ) -> tuple[State, State]:
        envelope = Envelope(task, self.lam, self.inner_steps, self.inner_lr)
        # Deviates: Only sampled clients train.
        local = fit(task, down, data["train"], self.optimizer, loss=envelope)
        # Deviates: The personal model is the proximal point of the final w_i on the round's first
        # batch.
        return local, envelope.proximal_point(local, data["personal"].step(0))

    def adapt(self, down: State, client: State, data: ClientData, task: Task) -> State:
        envelope = Envelope(task, self.lam, self.inner_steps, self.inner_lr)
        return envelope.proximal_point(down, data["personal"].step(0))

    def personalize(self, down: State, client: State, data: ClientData, task: Task) -> State:
        return client

    def after_broadcast(self, down: State, client: State, task: Task) -> State:
        return client

    def after_local(self, down: State, up: State, client: State, task: Task) -> State:
        return client


@dataclass(frozen=True)
class Envelope:
    """lam/2 ||w - theta||^2 with theta held fixed: its gradient is that of the Moreau envelope."""

    task: Task
    strength: float
    steps: int
    lr: float

    def __call__(self, state: State, batch: Batch) -> Loss:
        """Find theta on this batch, then measure the distance to it."""
        theta = tree_map(lambda v: v.detach(), self.proximal_point(state, batch))
        distance = squared_distance(self.task.trainable(state), self.task.trainable(theta))
        buffers = {k: v for k, v in theta.items() if self.task.is_buffer(k)}
        return Loss(self.strength / 2 * distance, buffers)

    def proximal_point(self, anchor: State, batch: Batch) -> State:
        """Take the inner steps from the anchor itself."""
        pulled = Pulled(self.task, self.strength)
        # Deviates: theta starts from w_i for each batch.
        theta = self.task.trainable(anchor)
        buffers = {k: v for k, v in anchor.items() if self.task.is_buffer(k)}

        def objective(theta: State) -> tuple[Tensor, State]:
            loss = pulled(buffers | theta, batch, anchor)
            return loss.value, loss.buffers

        for _ in range(self.steps):
            slopes, updated = grad_with_aux(objective, theta)
            theta = {k: theta[k] - self.lr * slopes[k] for k in theta}
        personal: State = anchor | theta | buffers | updated
        return personal
