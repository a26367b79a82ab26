"""FedAvg+ (FedAvg-FT): FedAvg, then a few local epochs from the final model.

Jiang et al., "Improving Federated Learning Personalization via Model Agnostic Meta Learning", 2019.
https://arxiv.org/abs/1909.12488
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from motet._core.tree import State
from motet._training.fitting import fit
from motet.method import Card, ClientData
from motet.methods._fedavg import FedAvg
from motet.optim import Optimizer
from motet.task import Task


@dataclass(frozen=True, kw_only=True)
class FedAvgFT(FedAvg):
    """FedAvg whose clients fine-tune the final model on their own training data before they use it.

    Attributes:
        adapt_epochs: Epochs of fine-tuning; 0 is FedAvg, many approach a warm-started Local.
        adapt_optimizer: Used for fine-tuning; `optimizer` if None.

    Example:
        >>> import motet
        >>> motet.FedAvgFT().name
        'fedavg-ft'
    """

    adapt_optimizer: Optimizer | None = None

    name: ClassVar[str] = "fedavg-ft"
    tuned_phases: ClassVar[tuple[str, ...]] = ("adapt",)
    card: ClassVar[Card] = Card(
        title="FedAvg+",
        paper="Jiang et al.",
        year=2019,
        link="https://arxiv.org/abs/1909.12488",
        idea="FedAvg, then fine-tune the final model at each client.",
        shared="the whole model",
        private="the fine-tuned copy, while it is served",
        down="1",
        up="1",
        new_client="fine-tunes the global model, like all clients",
    )

    def personalize(self, down: State, client: State, data: ClientData, task: Task) -> State:
        return fit(task, down | client, data["adapt"], self.adapt_optimizer or self.optimizer)
