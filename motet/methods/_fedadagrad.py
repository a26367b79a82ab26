"""FedAdagrad: Adagrad at the server.

Reddi et al., "Adaptive Federated Optimization", ICLR 2021.
https://arxiv.org/abs/2003.00295
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from motet.method import Card
from motet.methods._bases.fedopt import FedOpt
from motet.optim import Adagrad, Optimizer

PAPER = Adagrad(lr=0.1, eps=1e-3, s0=1e-6)


@dataclass(frozen=True, kw_only=True)
class FedAdagrad(FedOpt):
    """Server steps that shrink with all that a weight has moved: s <- s + d^2.

    Attributes:
        server_optimizer: `lr` is eta_s, `eps` is tau, `s0` is where s starts: tau^2, and `beta` is
            b1: 0, as in the paper.

    Example:
        >>> import motet
        >>> motet.FedAdagrad().name
        'fedadagrad'
    """

    server_optimizer: Optimizer | None = PAPER

    name: ClassVar[str] = "fedadagrad"
    expected: ClassVar[type[Any]] = Adagrad
    card: ClassVar[Card] = Card(
        title="FedAdagrad",
        paper="Reddi et al., ICLR",
        year=2021,
        link="https://arxiv.org/abs/2003.00295",
        idea="Adagrad at the server, on the averaged change of a round.",
        shared="the whole model",
        private="nothing",
        down="1",
        up="1",
        new_client="gets the global model",
    )
