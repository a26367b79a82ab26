"""LG-FedAvg: local encoders, a global head. FedPer's mirror image.

Liang et al., "Think Locally, Act Globally: Federated Learning with Local and Global
Representations", 2020. https://arxiv.org/abs/2001.01523
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from motet._core.aggregation.mean import Mean, Reduce
from motet._core.selectors import Selector
from motet.method import Card
from motet.methods._bases.partial_sharing import PartialSharing, split_warnings
from motet.task import Task


@dataclass(frozen=True, kw_only=True)
class LGFedAvg(PartialSharing):
    """Both parts are trained jointly; only the upper layers g are averaged.

    Attributes:
        shared: The upper layers g, which are averaged; what lies below them is the client's own
            encoder. `Blocks(last=k)` counts from the output. Every module is FedAvg, nothing is
            Local.

    Example:
        >>> import motet
        >>> motet.LGFedAvg(shared=("head",)).name
        'lg-fedavg'
    """

    # Deviates: The default split is the last block.
    shared: Selector = ("head",)
    # Deviates: The last round counts.
    reduce: Reduce = Mean(weights="uniform")

    name: ClassVar[str] = "lg-fedavg"
    card: ClassVar[Card] = Card(
        title="LG-FedAvg",
        paper="Liang et al.",
        year=2020,
        link="https://arxiv.org/abs/2001.01523",
        idea="Keep the lower layers, average the upper ones.",
        shared="the upper layers",
        private="the lower layers",
        down="upper layers",
        up="upper layers",
        new_client="starts from the initial lower layers and trains them, upper ones frozen",
    )

    def check(self, task: Task, clients: Sequence[str]) -> list[str]:
        return split_warnings(self, task, fix="name fewer modules in shared=")

    # Deviates: New clients do not average predictions of all local models.
    def personal_names(self, task: Task) -> frozenset[str]:
        return frozenset(task.names) - task.select(self.shared)
