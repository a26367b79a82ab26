"""FedAvgM: momentum at the server.

Hsu et al., "Measuring the Effects of Non-Identical Data Distribution for Federated Visual
Classification", 2019.
https://arxiv.org/abs/1909.06335
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from motet.method import Card
from motet.methods._bases.fedopt import FedOpt
from motet.optim import Optimizer, Sgd


@dataclass(frozen=True, kw_only=True)
class FedAvgM(FedOpt):
    """The server goes on in the direction of former rounds: b <- beta b + d, w <- w + eta_s b.

    Attributes:
        server_optimizer: `momentum` is beta, `lr` is eta_s. Momentum 0 with lr 1 is FedAvg.

    Example:
        >>> import motet
        >>> motet.FedAvgM().name
        'fedavgm'
    """

    server_optimizer: Optimizer | None = Sgd(lr=1.0, momentum=0.9)

    name: ClassVar[str] = "fedavgm"
    expected: ClassVar[type[Any]] = Sgd
    card: ClassVar[Card] = Card(
        title="FedAvgM",
        paper="Hsu et al.",
        year=2019,
        link="https://arxiv.org/abs/1909.06335",
        idea="FedAvg with momentum at the server.",
        shared="the whole model",
        private="nothing",
        down="1",
        up="1",
        new_client="gets the global model",
    )

    def server_warnings(self) -> list[str]:
        optimizer = self.server_optimizer
        if isinstance(optimizer, Sgd) and optimizer.momentum == 0:
            return ["fedavgm without momentum is fedavg; give server_optimizer= a momentum."]
        return super().server_warnings()
