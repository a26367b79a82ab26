"""FedRep: solve the head for the received body, then improve the body for that head.

Collins et al., "Exploiting Shared Representations for Personalized Federated Learning", ICML 2021.
https://arxiv.org/abs/2102.07078
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from motet._core.selectors import Selector
from motet._core.tree import State, drop, pick
from motet._training.batching import Batches, Plan
from motet._training.fitting import fit
from motet.method import Card, ClientData
from motet.methods._bases.partial_sharing import PartialSharing, split_warnings
from motet.task import Task


@dataclass(frozen=True, kw_only=True)
class FedRep(PartialSharing):
    """A shared body phi and private heads h_i, trained one after the other.

    Attributes:
        personal: The head h. Nothing is FedAvg, every module is Local.
        head_epochs: Epochs on the head per round, the body frozen as received; with 0 the head
            stays at its start, which is FedBABU without its fine-tuning.
        epochs: Epochs on the body per round, the head frozen at its new value.
        adapt_epochs: Epochs on the head, the body frozen, before a client is served. The head that
            training has left is one round older than the body.

    Example:
        >>> import motet
        >>> motet.FedRep(personal=("head",)).name
        'fedrep'
    """

    personal: Selector = ("head",)
    head_epochs: int = 10
    adapt_epochs: int = 10

    name: ClassVar[str] = "fedrep"
    tuned_phases: ClassVar[tuple[str, ...]] = ("adapt",)
    card: ClassVar[Card] = Card(
        title="FedRep",
        paper="Collins et al., ICML",
        year=2021,
        link="https://arxiv.org/abs/2102.07078",
        idea="Fit the head to the body, then the body to the head; average the body.",
        shared="the body",
        private="the head",
        down="body",
        up="body",
        new_client="trains a head from the common start, body frozen",
    )

    def plans(self) -> dict[str, Plan]:
        head = Plan(epochs=self.head_epochs, batch_size=self.batch_size, stream="personal")
        return {"head": head, "body": super().plans()["train"]}

    def check(self, task: Task, clients: Sequence[str]) -> list[str]:
        stuck = "fedrep with head_epochs=0 never trains its heads, which is fedbabu; give some."
        return split_warnings(self, task) + ([stuck] if self.head_epochs == 0 else [])

    def personal_names(self, task: Task) -> frozenset[str]:
        return task.select(self.personal)

    def client_update(
        self, down: State, client: State, data: ClientData, task: Task
    ) -> tuple[State, State]:
        model = self._fit_head(down | client, data["head"], task)
        # Deviates: Layers of the body that norm= keeps at the client are trained with the body.
        body = drop(model, self.personal_names(task))
        model = fit(task, model, data["body"], self.optimizer, train=body)
        return pick(model, down), pick(model, client)

    def adapt(self, down: State, client: State, data: ClientData, task: Task) -> State:
        if self.norm == "average":
            return client  # the fit that serves all clients takes a head from the common start, too
        return super().adapt(down, client, data, task)  # layers of the body that stay at home

    def personalize(self, down: State, client: State, data: ClientData, task: Task) -> State:
        return self._fit_head(down | client, data["adapt"], task)

    def _fit_head(self, model: State, batches: Batches, task: Task) -> State:
        # Deviates: Weight decay applies to all trained parameters of a phase.
        return fit(task, model, batches, self.optimizer, train=self.personal_names(task))
