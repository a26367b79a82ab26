"""FedSim: train the personal and the shared part together, average the shared part.

Pillutla et al., "Federated Learning with Partial Model Personalization", ICML 2022.
https://arxiv.org/abs/2204.03809
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from motet._core.tree import State, pick
from motet._training.fitting import fit
from motet._training.per_group import ByPart
from motet.method import Card, ClientData
from motet.methods._bases.partial_personalization import PartialPersonalization, joined
from motet.optim import Optimizer
from motet.task import Task


@dataclass(frozen=True, kw_only=True)
class FedSim(PartialPersonalization):
    """Simultaneous updates: every step moves u and v, both gradients taken at the same point.

    Attributes:
        personal_optimizer: If given, u and v step by an optimizer each, and a bound on the gradient
            norm holds for each by itself; else one optimizer steps both.

    Example:
        >>> import motet
        >>> motet.FedSim().name
        'fedsim'
    """

    name: ClassVar[str] = "fedsim"
    card: ClassVar[Card] = Card(
        title="FedSim",
        paper="Pillutla et al., ICML",
        year=2022,
        link="https://arxiv.org/abs/2204.03809",
        idea="Train the personal and the shared part together; average the shared part.",
        shared="all but the personal part",
        private="the personal part: any layers, adapters, a second model",
        down="shared part",
        up="shared part",
        new_client="trains the personal part, shared part frozen",
    )

    def client_update(
        self, down: State, client: State, data: ClientData, task: Task
    ) -> tuple[State, State]:
        loss, given = self.objective(client, task)
        optimizer = self._both(task)
        model = fit(task, joined(down, client), data["train"], optimizer, loss=loss, given=given)
        return pick(model, down), self.kept(model, client, task)

    def _both(self, task: Task) -> Optimizer:
        if self.personal_optimizer is None:
            return self.optimizer
        # Deviates: With personal_optimizer, each part steps with its own optimizer.
        return ByPart(self.personal_optimizer, self.personal_part(task), rest=self.optimizer)
