"""FedEM: every client's data are a mixture of K distributions, with one shared model each.

Marfoq et al., "Federated Multi-Task Learning under a Mixture of Distributions", NeurIPS 2021.
https://arxiv.org/abs/2108.10252
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.func import vmap

from motet._core import studies
from motet._core.keys import Key
from motet._core.studies import FinishedRun, Study
from motet._core.tree import State, float_type
from motet._training.batching import Batches, Plan
from motet._training.fitting import fit
from motet.errors import RequestError
from motet.method import Card, ClientData, Method, RoundInfo
from motet.methods._bases.bank import draw_bank, member
from motet.task import Batch, Loss, Task

LEAST = 1e-12  # responsibilities stay above 0, so that a real example can be told from padding
ITERATIONS = 10  # of the mixture alone, for a client that never trained


class Mixture(NamedTuple):
    """A client's predictor: the bank, and the client's share in each of its models."""

    bank: State
    shares: Tensor  # [models]


@dataclass(frozen=True, kw_only=True)
class FedEM(Method[State, State, State, State]):
    """A bank of K models, and per client the weights pi of a mixture of their predictions.

    Attributes:
        models: K. 1 is FedAvg.

    Example:
        >>> import motet
        >>> motet.FedEM(models=3).name
        'fedem'
    """

    models: int = 3

    name: ClassVar[str] = "fedem"
    one_network: ClassVar[bool] = False
    card: ClassVar[Card] = Card(
        title="FedEM",
        paper="Marfoq et al., NeurIPS",
        year=2021,
        link="https://arxiv.org/abs/2108.10252",
        idea="A client's data are a mixture of K distributions, one shared model each.",
        shared="K models",
        private="the weights of the mixture",
        down="K",
        up="K",
        new_client="finds the weights of its mixture; no model is trained",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.models < 1:
            raise RequestError(f"FedEM(models=) counts models: 1 or more; got {self.models}.")

    @property
    def gradients(self) -> Mapping[str, float]:  # type: ignore[override]
        """Count a gradient for each model; the E-step needs none."""
        return {"train": float(self.models), "expect": 0.0}

    def check(self, task: Task, clients: Sequence[str]) -> list[str]:
        return ["fedem: a mixture of one model is FedAvg."] if self.models == 1 else []

    def plans(self) -> dict[str, Plan]:
        return super().plans() | {"expect": Plan(epochs=1, batch_size=None)}

    def adapt_plans(self) -> dict[str, Plan]:
        return {"expect": Plan(epochs=1, batch_size=None)}

    def init_server(self, task: Task, initial: State, clients: Sequence[str], key: Key) -> State:
        return draw_bank(task, initial, self.models, key)

    def init_client(self, task: Task, initial: State, key: Key) -> State:
        return {"shares": torch.full((self.models,), 1 / self.models, dtype=float_type(initial))}

    def broadcast(self, server: State, info: RoundInfo) -> State:
        return server

    def client_update(
        self, down: State, client: State, data: ClientData, task: Task
    ) -> tuple[State, State]:
        losses, real = self.example_losses(down, data["expect"], task)
        q = responsibilities(losses, client["shares"])  # [models, examples]

        def maximise(model: State, mine: Tensor) -> State:
            batches = data["train"]
            weighted = batches._replace(weight=batches.weight * mine[batches.rows])
            return fit(task, model, weighted, self.optimizer, loss=WeightedLoss(task))

        return vmap(maximise)(down, q), {"shares": mean_over(q, real)}

    def server_update(self, server: State, combined: State, info: RoundInfo, task: Task) -> State:
        return combined

    def studies(self, run: FinishedRun) -> list[Study]:
        kept = {client: run.setting.client(client) for client in studies.trained(run)}
        return [
            studies.shares(
                "What each client's data are a mixture of",
                "The weights pi of the mixture that a client predicts with.",
                quantity="weight in the mixture",
                parts=[f"model {k + 1}" for k in range(self.models)],
                values={client: own["shares"] for client, own in kept.items()},
                total=len(run.setting.store),
            )
        ]

    def adapt(self, down: State, client: State, data: ClientData, task: Task) -> State:
        losses, real = self.example_losses(down, data["expect"], task)
        shares = client["shares"]
        for _ in range(ITERATIONS):
            shares = mean_over(responsibilities(losses, shares), real)
        return {"shares": shares}

    def personalize(self, down: State, client: State, data: ClientData, task: Task) -> Mixture:
        return Mixture(down, client["shares"])

    def after_broadcast(self, down: State, client: State, task: Task) -> Mixture:
        return Mixture(down, client["shares"])

    def after_local(self, down: State, up: State, client: State, task: Task) -> Mixture:
        return Mixture(up, client["shares"])

    def predict(self, personal: Mixture, x: Tensor, task: Task) -> Tensor:
        models = [task.predict(member(personal.bank, k), x) for k in range(self.models)]
        mixed: Tensor = torch.tensordot(personal.shares, torch.stack(models), dims=1)
        return mixed

    def example_losses(self, bank: State, batches: Batches, task: Task) -> tuple[Tensor, Tensor]:
        """Return every model's loss on every example, and which examples are real.

        Args:
            bank: All models of the server.
            batches: Batches of one client.
            task: The network and its loss.

        Returns:
            Tensors [models, examples] and [examples].
        """
        losses = [
            task.criterion.example_loss(task.outputs(member(bank, k), batches.x), batches.y)
            for k in range(self.models)
        ]
        real = torch.arange(batches.x.shape[0]) < batches.size
        return torch.stack(losses), real.to(losses[0].dtype)


def responsibilities(losses: Tensor, shares: Tensor) -> Tensor:
    """Say how likely each model is to have made each example: q ~ pi exp(-loss)."""
    q = (shares.clamp(min=LEAST).log()[:, None] - losses).softmax(0)
    return q.clamp(min=LEAST)


def mean_over(q: Tensor, real: Tensor) -> Tensor:
    """Average responsibilities over the real examples."""
    return (q * real).sum(1) / real.sum().clamp(min=1)


@dataclass(frozen=True)
class WeightedLoss:
    """The mean of q_s loss_s: divided by the number of examples, not by the sum of q."""

    task: Task

    def __call__(self, state: State, batch: Batch) -> Loss:
        """Scale the usual weighted mean back."""
        loss, weights = self.task.loss(state, batch), batch.weight
        real = (weights > 0).to(weights.dtype).sum().clamp(min=1)
        # Deviates: A step divides by the number of examples, not by the sum of their q.
        return loss * (weights.sum().clamp(min=1) / real)
