"""FedAMP and HeurFedAMP: each client is pulled towards a mixture of the models that resemble its
own.

Huang et al., "Personalized Cross-Silo Federated Learning on Non-IID Data", AAAI 2021.
https://arxiv.org/abs/2007.03797
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from motet._core import studies, tree
from motet._core.aggregation.mean import Gather, Reduce
from motet._core.keys import Key
from motet._core.studies import FinishedRun, Study
from motet._core.tree import State
from motet.errors import RequestError
from motet.method import Card, ClientData, PerClient, RoundInfo
from motet.methods._bases.tethered import Tethered
from motet.task import Task


@dataclass(frozen=True, kw_only=True)
class AttentiveMixing(Tethered[dict[str, State]]):
    """A model per client, and on the server a mixture u_i for each; subclasses say by what weights.

    Attributes:
        lam: The pull of w_i towards u_i, the paper's lambda / alpha_k. 0 is Local.
    """

    lam: float = 0.5
    reduce: Reduce = Gather()

    @abstractmethod
    def attention(self, models: Tensor) -> Tensor:
        """Return the weight that each client gives to each model.

        Args:
            models: The clients' models, [clients, parameters].

        Returns:
            A tensor [clients, clients] whose rows sum to 1.
        """

    def init_server(
        self, task: Task, initial: State, clients: Sequence[str], key: Key
    ) -> dict[str, State]:
        return dict.fromkeys(clients, initial)

    def broadcast(self, server: dict[str, State], info: RoundInfo) -> PerClient:
        names = sorted(server)
        weights = self.attention(flat(server, names))  # [clients, clients]
        mean = torch.full((len(names),), 1 / len(names), dtype=weights.dtype)
        rows = {client: weights[i] for i, client in enumerate(names)}
        stacked = tree.stack([server[name] for name in names])
        return PerClient({c: mixture(stacked, rows.get(c, mean)) for c in info.cohort})

    def client_update(
        self, down: State, client: State, data: ClientData, task: Task
    ) -> tuple[State, State]:
        own = self.pulled_fit(client, down, data["train"], task)
        return own, own

    def server_update(
        self, server: dict[str, State], combined: dict[str, State], info: RoundInfo, task: Task
    ) -> dict[str, State]:
        return server | combined

    def notes(self, server: dict[str, State], combined: Any, info: RoundInfo) -> dict[str, Any]:
        weights = self.attention(flat(server, sorted(server)))
        own = weights.diagonal().mean().item()
        # Distances of deep networks underflow the attention: then every client trains alone.
        return {"mean_attention_to_self": own, "collapsed_to_self": own > 1 - 1e-6}

    def studies(self, run: FinishedRun) -> list[Study]:
        names = sorted(run.server)
        to_self = [(note["round"], note["mean_attention_to_self"]) for note in run.notes]
        return [
            studies.matrix(
                "Who resembles whom",
                "Row: a client. Column: whose model its mixture is made of. Rows sum to 1.",
                quantity="attention",
                clients=names,
                frames=[(f"round {run.rounds_done}", self.attention(flat(run.server, names)))],
            ),
            studies.lines(
                "Attention to oneself",
                "Mean over clients. At 1 every client trains alone: the attention has collapsed.",
                x="round",
                y="share of the own model",
                series={"mean over clients": to_self},
            ),
        ]


@dataclass(frozen=True, kw_only=True)
class FedAMP(AttentiveMixing):
    """Attention falls with the distance of models: xi_ij = alpha A'(||w_i - w_j||^2).

    Attributes:
        alpha: The largest share that the other models can have together, when all are equal.
        sigma: Scale of squared distances; None takes the median distance of the round.

    Example:
        >>> import motet
        >>> motet.FedAMP(alpha=0.8).name
        'fedamp'
    """

    alpha: float = 0.8
    sigma: float | None = None

    name: ClassVar[str] = "fedamp"
    card: ClassVar[Card] = Card(
        title="FedAMP",
        paper="Huang et al., AAAI",
        year=2021,
        link="https://arxiv.org/abs/2007.03797",
        idea="Pull each client towards a mixture of the models that resemble its own.",
        shared="mixtures of personal models",
        private="a model",
        down="1",
        up="1",
        new_client="starts from the mean of all models and trains its own, pulled",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.alpha <= 1:
            raise RequestError(
                f"FedAMP(alpha=) is a share, so it lies in [0, 1]; got {self.alpha}."
            )
        if self.sigma is not None and not self.sigma > 0:
            raise RequestError(f"FedAMP(sigma=) must be above 0; got {self.sigma}.", option="sigma")

    def attention(self, models: Tensor) -> Tensor:
        clients = len(models)
        if clients == 1:
            return torch.ones(1, 1, dtype=models.dtype)
        squared = squared_distances(models)
        others = ~torch.eye(clients, dtype=torch.bool)
        sigma = self.sigma or squared[others].median().clamp(min=1e-30)
        # Deviates: alpha_k is alpha sigma / (N - 1). So no weight is negative.
        weights = self.alpha / (clients - 1) * torch.exp(-squared / sigma) * others
        return weights + torch.diag(1 - weights.sum(1))


@dataclass(frozen=True, kw_only=True)
class HeurFedAMP(AttentiveMixing):
    """Attention by the cosine of models, with a fixed share for the client's own.

    Attributes:
        own: The share xi_ii of the client's own model.
        sigma: Sharpness of the softmax over the others; 0 weighs them equally.

    Example:
        >>> import motet
        >>> motet.HeurFedAMP().name
        'heur-fedamp'
    """

    own: float = 0.5
    sigma: float = 10.0

    name: ClassVar[str] = "heur-fedamp"
    card: ClassVar[Card] = Card(
        title="HeurFedAMP",
        paper="Huang et al., AAAI",
        year=2021,
        link="https://arxiv.org/abs/2007.03797",
        idea="FedAMP with attention by the cosine of models.",
        shared="mixtures of personal models",
        private="a model",
        down="1",
        up="1",
        new_client="starts from the mean of all models and trains its own, pulled",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.own <= 1:
            raise RequestError(
                f"HeurFedAMP(own=) is a share, so it lies in [0, 1]; got {self.own}."
            )

    def attention(self, models: Tensor) -> Tensor:
        clients = len(models)
        if clients == 1:
            return torch.ones(1, 1, dtype=models.dtype)
        unit = models / models.norm(dim=1, keepdim=True).clamp(min=1e-30)
        alike: Tensor = self.sigma * (unit @ unit.mT)
        others = alike.fill_diagonal_(-torch.inf).softmax(1)
        return (1 - self.own) * others + self.own * torch.eye(clients, dtype=models.dtype)


def flat(models: dict[str, State], names: Sequence[str]) -> Tensor:
    """Lay each client's floating-point tensors side by side, in double precision."""
    return torch.stack(
        [
            torch.cat([v.double().flatten() for v in models[n].values() if v.is_floating_point()])
            for n in names
        ]
    )


def squared_distances(models: Tensor) -> Tensor:
    """Compute them by differences: the Gram identity loses all digits for models that are close."""
    # Deviates: Distances are computed by differences in double precision.
    return torch.stack([(models - model).square().sum(1) for model in models])


def mixture(stacked: State, weights: Tensor) -> State:
    """Mix models by weights; counters keep the largest."""

    def mix(leaf: Tensor) -> Tensor:
        if not leaf.is_floating_point():
            return leaf.amax(0)
        mixed: Tensor = torch.tensordot(weights, leaf.double(), dims=1)
        return mixed.to(leaf.dtype)

    return {k: mix(v) for k, v in stacked.items()}
