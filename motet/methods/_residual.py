"""Federated residual learning: a shared model, and a local one that predicts what it misses.

Agarwal, Langford and Wei, "Federated Residual Learning", 2020. https://arxiv.org/abs/2003.12880
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from motet._core.selectors import Selector
from motet._core.tree import State, pick, prefixed, slot
from motet._training.batching import Batches, Plan
from motet._training.fitting import fit
from motet.method import Card, ClientData
from motet.methods._bases.residual_model import OWN, ResidualModel, both
from motet.optim import Optimizer
from motet.task import Batch, Loss, Task


@dataclass(frozen=True, kw_only=True)
class ResidualFL(ResidualModel):
    """Fit v_i to what u leaves, u frozen; then u to what v_i leaves, v_i frozen; average u.

    Attributes:
        personal: The layers of which the local model has its own; it borrows the others from u.
            None gives it all of them: a second network. For one of another kind, build a
            `motet.models._surgery.sum_model` network, and train it by FedAlt.
        personal_epochs: Epochs on v per round; as many epochs or steps as u if None. With 0 this
            is FedAvg.
        personal_optimizer: Trains v; `optimizer`, which trains u, if None.

    Example:
        >>> import motet
        >>> motet.ResidualFL().name
        'residual'
    """

    personal: Selector | None = None
    personal_epochs: int | None = None
    personal_optimizer: Optimizer | None = None

    name: ClassVar[str] = "residual"
    card: ClassVar[Card] = Card(
        title="Federated residual learning",
        paper="Agarwal et al.",
        year=2020,
        link="https://arxiv.org/abs/2003.12880",
        idea="Add the outputs of a shared and a local model.",
        shared="a model",
        private="a second model, whose output is added",
        down="1",
        up="1",
        new_client="starts a local model at output 0 and trains it, shared model frozen",
    )

    def plans(self) -> dict[str, Plan]:
        shared, size = super().plans()["train"], self.batch_size
        epochs, steps = self.personal_epochs, None
        if epochs is None:
            epochs, steps = self.epochs, self.steps
        own = Plan(epochs=epochs, steps=steps, batch_size=size, stream="personal")
        return {"personal": own, "shared": shared}

    def check(self, task: Task, clients: Sequence[str]) -> list[str]:
        off = "residual with personal_epochs=0 leaves the local model at 0, which is fedavg."
        return super().check(task, clients) + ([off] if self.personal_epochs == 0 else [])

    def own_names(self, task: Task) -> frozenset[str]:
        return frozenset(task.names) if self.personal is None else task.select(self.personal)

    def client_update(
        self, down: State, client: State, data: ClientData, task: Task
    ) -> tuple[State, State]:
        kept = self._fit_own(down, client, data["personal"], task)
        loss, model = SummedLoss(task), down | kept
        # Deviates: Both phases are SGD.
        trained = fit(task, model, data["shared"], self.optimizer, loss=loss, train=down)
        return pick(trained, down), kept

    def adapt(self, down: State, client: State, data: ClientData, task: Task) -> State:
        return self._fit_own(down, client, data["adapt"], task)

    def _fit_own(self, down: State, client: State, batches: Batches, task: Task) -> State:
        optimizer = self.personal_optimizer or self.optimizer
        loss, model = SummedLoss(task), down | client
        return pick(fit(task, model, batches, optimizer, loss=loss, train=client), client)


@dataclass(frozen=True)
class SummedLoss:
    """The loss of g(x; u) + l(x; v)."""

    task: Task

    def __call__(self, state: State, batch: Batch) -> Loss:
        """Compute it; each model's statistics follow its own forward pass."""
        shared, own = both(state)
        first, buffers = self.task.training_outputs(shared, batch)
        second, theirs = self.task.training_outputs(own, batch)
        moved = prefixed(OWN, pick(theirs, slot(OWN, state)))
        return Loss(self.task.loss_of(first + second, batch), buffers | moved)
