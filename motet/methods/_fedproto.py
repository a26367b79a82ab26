"""FedProto: clients exchange class prototypes, not weights.

Tan et al., "FedProto: Federated Prototype Learning across Heterogeneous Clients", AAAI 2022.
https://arxiv.org/abs/2105.00243
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from motet._core.aggregation.mean import Mean, Reduce
from motet._core.keys import Key
from motet._core.selectors import module_path
from motet._core.tree import State
from motet._training.batching import Batches, Plan
from motet._training.fitting import fit
from motet.errors import CapabilityError, RequestError
from motet.method import Card, ClientData, Method, RoundInfo
from motet.task import Batch, Loss, Task


class Prototypes(NamedTuple):
    """A mean representation per class, and how many examples stand behind it."""

    means: Tensor  # [classes, width]
    counts: Tensor  # [classes]; 0 for classes that no client has seen


class Sums(NamedTuple):
    """What a client sends: sums of representations by class, and their number."""

    sums: Tensor  # [classes, width]
    counts: Tensor  # [classes]


class Personal(NamedTuple):
    """A client's predictor: its own network, and the shared prototypes."""

    state: State
    prototypes: Prototypes


@dataclass(frozen=True, kw_only=True)
class FedProto(Method[Prototypes, State, Prototypes, Sums]):
    """Each client has a network of its own, whose representations are pulled towards shared
    prototypes.

    Attributes:
        lam: Weight of the pull. 0 is Local.
        features: The module whose input is the representation.
        inference: "prototype" takes the nearest prototype (the paper), "head" the network's own
            answer.

    Example:
        >>> import motet
        >>> motet.FedProto(lam=1.0).name
        'fedproto'
    """

    lam: float = 1.0
    features: str = "head"
    inference: Literal["prototype", "head"] = "prototype"
    reduce: Reduce = Mean(weights="uniform")

    name: ClassVar[str] = "fedproto"
    one_network: ClassVar[bool] = False
    gradients: ClassVar[Mapping[str, float]] = MappingProxyType({"all": 0.0})
    card: ClassVar[Card] = Card(
        title="FedProto",
        paper="Tan et al., AAAI",
        year=2022,
        link="https://arxiv.org/abs/2105.00243",
        idea="Exchange class prototypes, not weights.",
        shared="a mean representation per class",
        private="the whole model",
        down="prototypes",
        up="prototypes",
        new_client="trains its own model towards the prototypes",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.lam >= 0:
            raise RequestError(f"FedProto(lam=) must be 0 or more; got {self.lam}.", option="lam")
        if self.inference not in ("prototype", "head"):
            raise RequestError(f'inference= is "prototype" or "head"; got {self.inference!r}.')

    def check(self, task: Task, clients: Sequence[str]) -> list[str]:
        if task.criterion.kind != "classes":
            raise CapabilityError(
                "FedProto has one prototype per class, so it needs a classification task; this one "
                f"uses {task.criterion.name}."
            )
        return ["fedproto: lam=0 pulls nothing: Local."] if self.lam == 0 else []

    def plans(self) -> dict[str, Plan]:
        return super().plans() | {"all": Plan(epochs=1, batch_size=None)}

    def init_server(
        self, task: Task, initial: State, clients: Sequence[str], key: Key
    ) -> Prototypes:
        assert task.example is not None
        z = self._represent(task, initial, task.example)
        classes = task.outputs(initial, task.example).shape[-1]
        return Prototypes(z.new_zeros(classes, z.shape[1]), z.new_zeros(classes))

    def init_client(self, task: Task, initial: State, key: Key) -> State:
        return initial

    def broadcast(self, server: Prototypes, info: RoundInfo) -> Prototypes:
        return server

    def client_update(
        self, down: Prototypes, client: State, data: ClientData, task: Task
    ) -> tuple[Sums, State]:
        own = self._fit_towards(down, client, data["train"], task)
        # Deviates: Prototypes come from a clean pass after training.
        return self._sums(own, data["all"], down, task), own

    def server_update(
        self, server: Prototypes, combined: Sums, info: RoundInfo, task: Task
    ) -> Prototypes:
        seen = combined.counts > 0
        # Means of sums and of counts have one denominator, which cancels.
        # Deviates: Prototypes are weighted by counts.
        means = combined.sums / combined.counts.clamp(min=1e-12)[:, None]
        return Prototypes(
            torch.where(seen[:, None], means, server.means),
            torch.where(seen, combined.counts * len(info.cohort), server.counts),
        )

    def adapt(self, down: Prototypes, client: State, data: ClientData, task: Task) -> State:
        return self._fit_towards(down, client, data["adapt"], task)

    def personalize(
        self, down: Prototypes, client: State, data: ClientData, task: Task
    ) -> Personal:
        return Personal(client, down)

    def after_broadcast(self, down: Prototypes, client: State, task: Task) -> Personal:
        return Personal(client, down)

    def after_local(self, down: Prototypes, up: Sums, client: State, task: Task) -> Personal:
        return Personal(client, down)

    def predict(self, personal: Personal, x: Tensor, task: Task) -> Tensor:
        answer = task.predict(personal.state, x)
        if self.inference == "head":
            return answer
        means, counts = personal.prototypes
        z = self._represent(task, personal.state, x)
        squared = (z[:, None] - means).square().sum(-1)  # [examples, classes]
        nearest = torch.where(counts > 0, -squared, -torch.inf).softmax(-1)
        # Before the first round there are no prototypes.
        # Deviates: Before the first round, prediction falls back on the head.
        return torch.where((counts > 0).any(), nearest, answer)

    def _represent(self, task: Task, state: State, x: Tensor) -> Tensor:
        return task.features(state, x, module_path(task.skeleton, self.features))

    def _fit_towards(
        self, prototypes: Prototypes, own: State, batches: Batches, task: Task
    ) -> State:
        loss = PrototypeLoss(task, self.lam, module_path(task.skeleton, self.features))
        return fit(task, own, batches, self.optimizer, loss=loss, given=(prototypes,))

    def _sums(self, own: State, batches: Batches, like: Prototypes, task: Task) -> Sums:
        real = torch.arange(batches.x.shape[0]) < batches.size
        members = F.one_hot(batches.y, like.counts.shape[0]).to(like.means.dtype) * real[:, None]
        z = self._represent(task, own, batches.x)
        return Sums(members.mT @ z, members.sum(0))


@dataclass(frozen=True)
class PrototypeLoss:
    """The loss plus lam times the mean squared distance to the prototype of the example's class."""

    task: Task
    strength: float
    module: str

    def __call__(self, state: State, batch: Batch, prototypes: Prototypes) -> Loss:
        """Compute it; examples of classes without a prototype are not pulled."""
        z = self.task.features(state, batch.x, self.module)
        known = (prototypes.counts[batch.y] > 0).to(z.dtype) * batch.weight
        # Deviates: The squared distance is averaged over the width.
        apart = (z - prototypes.means[batch.y]).square().mean(1)
        pull = (apart * known).sum() / batch.weight.sum().clamp(min=1)
        return self.task.loss(state, batch) + self.strength * pull
