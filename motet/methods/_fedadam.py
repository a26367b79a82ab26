"""FedAdam: Adam at the server.

Reddi et al., "Adaptive Federated Optimization", ICLR 2021.
https://arxiv.org/abs/2003.00295
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from motet.method import Card
from motet.methods._bases.fedopt import FedOpt
from motet.optim import Adam, Optimizer

PAPER = Adam(lr=0.01, betas=(0.9, 0.99), eps=1e-3, s0=1e-6, bias_correction=False)


@dataclass(frozen=True, kw_only=True)
class FedAdam(FedOpt):
    """Each weight has its own server step: a <- b1 a + (1 - b1) d, s <- b2 s + (1 - b2) d^2.

    Attributes:
        server_optimizer: `lr` is eta_s, `eps` is tau, `s0` is where s starts: tau^2, and without
            bias correction, as in the paper.

    Example:
        >>> import motet
        >>> motet.FedAdam().name
        'fedadam'
    """

    server_optimizer: Optimizer | None = PAPER

    name: ClassVar[str] = "fedadam"
    expected: ClassVar[type[Any]] = Adam
    card: ClassVar[Card] = Card(
        title="FedAdam",
        paper="Reddi et al., ICLR",
        year=2021,
        link="https://arxiv.org/abs/2003.00295",
        idea="Adam at the server, on the averaged change of a round.",
        shared="the whole model",
        private="nothing",
        down="1",
        up="1",
        new_client="gets the global model",
    )
