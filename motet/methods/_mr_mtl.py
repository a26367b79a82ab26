"""MR-MTL (mean-regularised multi-task learning): one model per client, pulled towards the mean.

Liu et al., "On Privacy and Personalization in Cross-Silo Federated Learning", NeurIPS 2022.
https://arxiv.org/abs/2206.07902
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from motet._core.tree import State
from motet.method import Card, ClientData
from motet.methods._bases.global_model import GlobalModel
from motet.methods._bases.tethered import Tethered
from motet.task import Task


@dataclass(frozen=True, kw_only=True)
class MRMTL(Tethered[State], GlobalModel):
    """Personal models x_i around their mean.

    Attributes:
        lam: The pull of x_i towards the mean of the last round. 0 is Local, large values approach
            one model for all.

    Example:
        >>> import motet
        >>> motet.MRMTL().name
        'mr-mtl'
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

    def client_update(
        self, down: State, client: State, data: ClientData, task: Task
    ) -> tuple[State, State]:
        own = self.pulled_fit(client, down, data["train"], task)
        return own, own
