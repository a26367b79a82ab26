"""FedProx: FedAvg whose clients are held near the model they received.

Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020.
https://arxiv.org/abs/1812.06127
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from motet._core.tree import State, pick
from motet._training.fitting import fit
from motet._training.penalties import Pulled
from motet.errors import RequestError
from motet.method import Card, ClientData
from motet.methods._fedavg import FedAvg
from motet.task import Task


@dataclass(frozen=True, kw_only=True)
class FedProx(FedAvg):
    """Clients minimise f_i(w) + mu / 2 ||w - w^t||^2, where w^t is the model they received.

    Attributes:
        mu: Strength of the pull towards w^t; 0 is FedAvg, a large one leaves w^t where it is.

    Example:
        >>> import motet
        >>> motet.FedProx(mu=0.01).name
        'fedprox'
    """

    mu: float = 0.1

    name: ClassVar[str] = "fedprox"
    card: ClassVar[Card] = Card(
        title="FedProx",
        paper="Li et al., MLSys",
        year=2020,
        link="https://arxiv.org/abs/1812.06127",
        idea="FedAvg whose clients are pulled towards the model they received.",
        shared="the whole model",
        private="nothing",
        down="1",
        up="1",
        new_client="gets the global model",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.mu >= 0:
            raise RequestError(f"mu= must be 0 or more; got {self.mu}.", option="mu")

    def check(self, task: Task, clients: Sequence[str]) -> list[str]:
        neutral = ["fedprox with mu=0 is fedavg; give mu= above 0."] if self.mu == 0 else []
        return [*super().check(task, clients), *neutral]

    def client_update(
        self, down: State, client: State, data: ClientData, task: Task
    ) -> tuple[State, State]:
        # Deviates: Stragglers are not simulated.
        loss = Pulled(task, self.mu)
        # Deviates: What norm= keeps at a client is not pulled.
        trained = fit(task, down | client, data["train"], self.optimizer, loss=loss, given=(down,))
        return pick(trained, down), pick(trained, client)
