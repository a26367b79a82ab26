"""FedAvg + shared data: clients train on a small pool of common examples beside their own.

Zhao et al., "Federated Learning with Non-IID Data", 2018.
https://arxiv.org/abs/1806.00582
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from motet.data._federation import Federation
from motet.data._shared import Donors, check_shares
from motet.method import Card
from motet.methods._fedavg import FedAvg
from motet.task import Task


@dataclass(frozen=True, kw_only=True)
class FedAvgShared(FedAvg):
    """FedAvg on D_i and G_i: a client's own examples, and its part of a class-balanced pool G.

    Examples leave the clients who gave them, which federated learning usually forbids: a baseline.
    A client counts with all that it trains on, its part of the pool included.

    Attributes:
        beta: Size of the pool, as a share of all training examples; 0 is FedAvg.
        alpha: Share of the pool that each client gets.
        donors: Whether clients "keep" what they gave to the pool (as FedFomo's baseline does), or
            "give" it away, so that the pool is held out as in Zhao et al.
        pool_seed: Names the draw: part of the data, the same for every seed of a run.

    Example:
        >>> import motet
        >>> motet.FedAvgShared().name
        'fedavg-shared'
    """

    beta: float = 0.05
    alpha: float = 1.0
    donors: Donors = "keep"
    pool_seed: int = 0

    name: ClassVar[str] = "fedavg-shared"
    card: ClassVar[Card] = Card(
        title="FedAvg + shared data",
        paper="Zhao et al.",
        year=2018,
        link="https://arxiv.org/abs/1806.00582",
        idea="FedAvg whose clients also train on a small common pool of examples.",
        shared="the whole model, and the pool of examples",
        private="nothing",
        down="1, and once a part of the pool",
        up="1, and once the pool",
        new_client="gets the global model",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_shares(self.beta, self.alpha, self.donors)

    # Deviates: A client counts with everything it trains on.
    def prepare(self, federation: Federation) -> Federation:
        # Deviates: The warm-up on G is a run of its own.
        return federation.share(
            beta=self.beta, alpha=self.alpha, donors=self.donors, seed=self.pool_seed
        )

    def check(self, task: Task, clients: Sequence[str]) -> list[str]:
        neutral = ["fedavg-shared with beta=0 is fedavg; give beta= above 0."]
        return [*super().check(task, clients), *(neutral if self.beta == 0 else [])]
