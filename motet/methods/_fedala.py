"""FedALA: before it trains, a client mixes the global model into its own, with learnt weights.

Zhang et al., "FedALA: Adaptive Local Aggregation for Personalized Federated Learning", AAAI 2023.
https://arxiv.org/abs/2212.01197
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import torch

from motet._core import tree
from motet._core.keys import Key
from motet._core.points import Point
from motet._core.selectors import Selector
from motet._core.tree import State, pick, prefixed, slot
from motet._training.batching import Batches, Plan
from motet._training.fitting import fit
from motet._training.per_group import InUnitInterval
from motet.errors import RequestError
from motet.method import Card, ClientData
from motet.methods._bases.global_model import GlobalModel
from motet.optim import Sgd
from motet.task import Batch, Loss, Task

OWN, WEIGHT, ROUNDS = "own", "weight", "rounds"  # a client's model, its W, how often it trained


@dataclass(frozen=True, kw_only=True)
class FedALA(GlobalModel):
    """Training starts from own + (global - own) * W in the upper layers, from global below.

    Attributes:
        mixed: The upper layers that are mixed, element by element. Nothing is FedAvg.
        weight_lr: Step size of W (eta); 0 leaves W at 1, which is FedAvg.
        share: Share of a client's data on which W is learnt (s), drawn in every round.
        first_epochs: Passes over them when a client learns its W for the first time; one later.

    Example:
        >>> import motet
        >>> motet.FedALA(mixed=("head",)).name
        'fedala'
    """

    mixed: Selector = ("head",)
    weight_lr: float = 1.0
    share: float = 0.8
    first_epochs: int = 10

    name: ClassVar[str] = "fedala"
    # The authors score clients between the local aggregation and local training.
    reported: ClassVar[Point] = "after_broadcast"
    arrival_phases: ClassVar[tuple[str, ...]] = ("weight", "first")
    # The first search happens once in a client's life, so it is not part of a round's cost.
    gradients: ClassVar[Mapping[str, float]] = MappingProxyType({"first": 0.0})
    card: ClassVar[Card] = Card(
        title="FedALA",
        paper="Zhang et al., AAAI",
        year=2023,
        link="https://arxiv.org/abs/2212.01197",
        idea="Mix the global model into the local one with learnt weights, then train.",
        shared="a model",
        private="the last local model, and a weight per upper parameter",
        down="1",
        up="1",
        new_client="trains the global model on its own data",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.weight_lr >= 0 and self.first_epochs >= 1):
            raise RequestError(
                "weight_lr= is 0 or more and first_epochs= 1 or more; got "
                f"weight_lr={self.weight_lr} and first_epochs={self.first_epochs}."
            )

    def plans(self) -> dict[str, Plan]:
        once, more = self._search(1, "weight"), self._search(self.first_epochs - 1, "first")
        return {"weight": once, "first": more} | super().plans()

    def _search(self, epochs: int, stream: str) -> Plan:
        size, share = self.batch_size, self.share
        return Plan(epochs=epochs, batch_size=size, share=share, stream=stream, scheduled=False)

    def check(self, task: Task, clients: Sequence[str]) -> list[str]:
        nothing = "fedala that mixes no layer is fedavg; name modules in mixed=."
        stuck = "fedala with weight_lr=0 leaves W at 1, which is fedavg; give weight_lr= above 0."
        mixes = self._mixed(task)
        return ([] if mixes else [nothing]) + ([stuck] if self.weight_lr == 0 else [])

    def init_client(self, task: Task, initial: State, key: Key) -> State:
        ones = tree.tree_map(torch.ones_like, pick(initial, self._mixed(task)))
        return (
            prefixed(OWN, tree.clone(initial)) | prefixed(WEIGHT, ones) | {ROUNDS: torch.tensor(0)}
        )

    def arrive(self, down: State, client: State, data: ClientData, task: Task) -> State:
        first = client[ROUNDS] == 1  # in round 0 there was no own model yet, and nothing to learn
        # Deviates: W is first learnt in a fixed number of passes.
        more = data["first"]._replace(weight=data["first"].weight * first)
        weight = slot(WEIGHT, client)
        for batches in (data["weight"], more):
            weight = self._fit_weight(weight, down, self._own(down, client), batches, task)
        return client | prefixed(WEIGHT, weight)

    def client_update(
        self, down: State, client: State, data: ClientData, task: Task
    ) -> tuple[State, State]:
        arrived = self.arrive(down, client, data, task)
        start = self.after_broadcast(down, arrived, task)
        up = fit(task, start, data["train"], self.optimizer)
        return up, arrived | prefixed(OWN, tree.clone(up)) | {ROUNDS: client[ROUNDS] + 1}

    def adapt(self, down: State, client: State, data: ClientData, task: Task) -> State:
        return client | prefixed(OWN, fit(task, down, data["adapt"], self.optimizer))

    def personalize(self, down: State, client: State, data: ClientData, task: Task) -> State:
        return slot(OWN, client)

    def after_broadcast(self, down: State, client: State, task: Task) -> State:
        return mixture(down, self._own(down, client), slot(WEIGHT, client))

    def after_local(self, down: State, up: State, client: State, task: Task) -> State:
        return up

    def _mixed(self, task: Task) -> frozenset[str]:
        # Deviates: p counts blocks, not tensors.
        return task.select(self.mixed) & task.parameters

    def _own(self, down: State, client: State) -> State:
        """Return a client's last model; one that has none yet takes the received one for it."""
        # Deviates: In its first round a client takes the received model.
        return tree.where(client[ROUNDS] > 0, slot(OWN, client), down)

    def _fit_weight(
        self, weight: State, down: State, own: State, batches: Batches, task: Task
    ) -> State:
        optimizer = InUnitInterval(Sgd(lr=self.weight_lr))
        return fit(task, weight, batches, optimizer, loss=MixedLoss(task), given=(down, own))


def mixture(received: State, own: State, weight: State) -> State:
    """Mix what W covers; the rest is as received. W = 1 is the received model to the last bit."""
    return received | {k: torch.lerp(own[k], received[k], w) for k, w in weight.items()}


@dataclass(frozen=True)
class MixedLoss:
    """The loss of the mixture, as a function of W. Nothing else moves, statistics neither."""

    task: Task

    def __call__(self, weight: State, batch: Batch, received: State, own: State) -> Loss:
        """Compute it."""
        # Deviates: Running statistics are as received.
        return Loss(self.task.loss(mixture(received, own, weight), batch).value, {})
