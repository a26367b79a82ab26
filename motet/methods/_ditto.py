"""Ditto: FedAvg, and beside it a personal model that is pulled towards the global one.

Li et al., "Ditto: Fair and Robust Federated Learning Through Personalization", ICML 2021.
https://arxiv.org/abs/2012.04221
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from motet._core.tree import State
from motet._training.batching import Plan
from motet._training.fitting import fit
from motet.method import Card, ClientData
from motet.methods._bases.global_model import GlobalModel
from motet.methods._bases.tethered import Tethered
from motet.task import Task


@dataclass(frozen=True, kw_only=True)
class Ditto(Tethered[State], GlobalModel):
    """A private model v_i beside the global w.

    Attributes:
        lam: The pull of v_i towards the received w. 0 is Local, large values approach w.
        personal_optimizer: Trains v_i; `optimizer` if None.
        personal_epochs: Epochs on v_i per round; as many epochs or steps as w if None.

    Example:
        >>> import motet
        >>> motet.Ditto(lam=0.5).name
        'ditto'
    """

    personal_epochs: int | None = None

    name: ClassVar[str] = "ditto"
    card: ClassVar[Card] = Card(
        title="Ditto",
        paper="Li et al., ICML",
        year=2021,
        link="https://arxiv.org/abs/2012.04221",
        idea="FedAvg, and beside it a personal model pulled towards the global one.",
        shared="a model",
        private="a second model",
        down="1",
        up="1",
        new_client="starts from the global model and trains its own, pulled",
    )

    def plans(self) -> dict[str, Plan]:
        shared = super().plans()["train"]
        own = Plan(epochs=self.personal_epochs, batch_size=self.batch_size)
        return {"train": shared, "personal": shared if self.personal_epochs is None else own}

    def client_update(
        self, down: State, client: State, data: ClientData, task: Task
    ) -> tuple[State, State]:
        # Deviates: Clients are averaged by their number of examples.
        upload = fit(task, down, data["train"], self.optimizer)
        # The anchor is the model as received (w^t in Algorithm 1), not as trained here.
        # Deviates: lam is one number for all clients.
        return upload, self.pulled_fit(client, down, data["personal"], task)
