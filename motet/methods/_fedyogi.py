"""FedYogi: Yogi at the server.

Reddi et al., "Adaptive Federated Optimization", ICLR 2021.
https://arxiv.org/abs/2003.00295
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from motet.method import Card
from motet.methods._bases.fedopt import FedOpt
from motet.optim import Optimizer, Yogi

PAPER = Yogi(lr=0.01, betas=(0.9, 0.99), eps=1e-3, s0=1e-6)


@dataclass(frozen=True, kw_only=True)
class FedYogi(FedOpt):
    """FedAdam whose second moment is cautious: s <- s - (1 - b2) d^2 sign(s - d^2).

    Attributes:
        server_optimizer: `lr` is eta_s, `eps` is tau, `s0` is where s starts: tau^2, and without
            bias correction, as in the paper.

    Example:
        >>> import motet
        >>> motet.FedYogi().name
        'fedyogi'
    """

    server_optimizer: Optimizer | None = PAPER

    name: ClassVar[str] = "fedyogi"
    expected: ClassVar[type[Any]] = Yogi
    card: ClassVar[Card] = Card(
        title="FedYogi",
        paper="Reddi et al., ICLR",
        year=2021,
        link="https://arxiv.org/abs/2003.00295",
        idea="Yogi at the server, on the averaged change of a round.",
        shared="the whole model",
        private="nothing",
        down="1",
        up="1",
        new_client="gets the global model",
    )
