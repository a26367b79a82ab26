"""FedAvg: average the locally trained models.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS
2017.
https://arxiv.org/abs/1602.05629
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from motet.method import AnyMethod, Card
from motet.methods._bases.partial_sharing import PartialSharing
from motet.methods._bases.training_twin import twin
from motet.task import Task


@dataclass(frozen=True, kw_only=True)
class FedAvg(PartialSharing):
    """One global model for all clients: the reference point of every comparison.

    Example:
        >>> import motet
        >>> motet.FedAvg().name
        'fedavg'
    """

    name: ClassVar[str] = "fedavg"
    stateful: ClassVar[bool] = False
    card: ClassVar[Card] = Card(
        title="FedAvg",
        paper="McMahan et al., AISTATS",
        year=2017,
        link="https://arxiv.org/abs/1602.05629",
        idea="Average the locally trained models.",
        shared="the whole model",
        private="nothing",
        down="1",
        up="1",
        new_client="gets the global model",
    )

    # Deviates: Weights are renormalised over the cohort.
    def personal_names(self, task: Task) -> frozenset[str]:
        return frozenset()

    def trains_as(self) -> AnyMethod:
        return twin(FedAvg, self)
