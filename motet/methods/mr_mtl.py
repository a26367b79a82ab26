"""MR-MTL (mean-regularised multi-task learning): one model per client, pulled towards the mean.

Liu et al., "On Privacy and Personalization in Cross-Silo Federated Learning", NeurIPS 2022.
https://arxiv.org/abs/2206.07902
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from motet.errors import RequestError
from motet.fitting import fit
from motet.method import Card, ClientData
from motet.methods.global_model import GlobalModel
from motet.objectives import Pulled
from motet.plans import Batches
from motet.task import Task
from motet.tree import State


@dataclass(frozen=True, kw_only=True)
class MRMTL(GlobalModel):
    """Personal models x_i around their mean.

    Attributes:
        lam: The pull of x_i towards the mean of the last round. 0 is Local, large values approach
            one model for all.
    """

    lam: float = 0.1

    name: ClassVar[str] = "mr-mtl"
    card: ClassVar[Card] = Card(
        title="MR-MTL",
        paper="Liu et al., NeurIPS",
        year=2022,
        link="https://arxiv.org/abs/2206.07902",
        idea="One model per client, pulled towards the mean of all.",
        shared="the mean of the personal models",
        private="a model",
        down="1",
        up="1",
        new_client="starts from the mean and trains its own, pulled",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.lam >= 0:
            raise RequestError(f"MRMTL(lam=) weighs a penalty, so it is 0 or more; got {self.lam}.")

    def check(self, task: Task, clients: Sequence[str]) -> list[str]:
        neutral = "mr-mtl: lam=0 cuts the tether, so the personal models are Local's."
        return [neutral] if self.lam == 0 else []

    def client_update(
        self, down: State, client: State, data: ClientData, task: Task
    ) -> tuple[State, State]:
        own = self._pulled_fit(client, down, data["train"], task)
        return own, own

    def adapt(self, down: State, client: State, data: ClientData, task: Task) -> State:
        return self._pulled_fit(down, down, data["adapt"], task)

    def personalize(self, down: State, client: State, data: ClientData, task: Task) -> State:
        return client

    def after_broadcast(self, down: State, client: State, task: Task) -> State:
        return client

    def after_local(self, down: State, up: State, client: State, task: Task) -> State:
        return client

    def _pulled_fit(self, own: State, anchor: State, batches: Batches, task: Task) -> State:
        loss = Pulled(task, self.lam)
        return fit(task, own, batches, self.optimizer, loss=loss, given=(anchor,))
