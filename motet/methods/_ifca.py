"""IFCA (HypCluster): K global models, and every client joins the one that fits its data best.

Ghosh et al., "An Efficient Framework for Clustered Federated Learning", NeurIPS 2020.
https://arxiv.org/abs/2006.04088
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from motet._core import studies
from motet._core.aggregation.mean import Reduce
from motet._core.keys import Key
from motet._core.studies import FinishedRun, Study
from motet._core.tree import State
from motet._training.batching import Batches, Plan
from motet._training.fitting import fit, mean_loss
from motet.errors import RequestError
from motet.method import Card, ClientData, Method, RoundInfo
from motet.methods._bases.bank import Grouped, GroupMean, chosen, draw_bank, member, membership
from motet.task import Task


@dataclass(frozen=True, kw_only=True)
class IFCA(Method[State, State, State, Grouped]):
    """A bank of K models; a client trains, and is served, the one with the least training loss.

    Attributes:
        models: K. 1 is FedAvg.
        reduce: The mean within each cluster.

    Example:
        >>> import motet
        >>> motet.IFCA(models=2).name
        'ifca'
    """

    models: int = 2
    reduce: Reduce = GroupMean()

    name: ClassVar[str] = "ifca"
    stateful: ClassVar[bool] = False
    gradients: ClassVar[Mapping[str, float]] = MappingProxyType({"choose": 0.0})
    card: ClassVar[Card] = Card(
        title="IFCA",
        paper="Ghosh et al., NeurIPS",
        year=2020,
        link="https://arxiv.org/abs/2006.04088",
        idea="K global models; every client joins the one that fits its data best.",
        shared="K models",
        private="nothing: the choice is made each time",
        down="K",
        up="1",
        new_client="takes the model with the least loss on its own data",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.models < 1:
            raise RequestError(f"IFCA(models=) counts models: 1 or more; got {self.models}.")

    def check(self, task: Task, clients: Sequence[str]) -> list[str]:
        return ["ifca: one model leaves no choice, so this is FedAvg."] if self.models == 1 else []

    def plans(self) -> dict[str, Plan]:
        return super().plans() | {"choose": Plan(epochs=1, batch_size=self.batch_size)}

    def adapt_plans(self) -> dict[str, Plan]:
        return {"choose": Plan(epochs=1, batch_size=self.batch_size)}

    def init_server(self, task: Task, initial: State, clients: Sequence[str], key: Key) -> State:
        return draw_bank(task, initial, self.models, key)

    def init_client(self, task: Task, initial: State, key: Key) -> State:
        return {}

    def broadcast(self, server: State, info: RoundInfo) -> State:
        return server

    def client_update(
        self, down: State, client: State, data: ClientData, task: Task
    ) -> tuple[Grouped, State]:
        choice = self.choose(down, data["choose"], task)
        trained = fit(task, chosen(down, choice), data["train"], self.optimizer)
        return Grouped(trained, choice), client

    def server_update(self, server: State, combined: Grouped, info: RoundInfo, task: Task) -> State:
        return {k: _where_any(combined.group, combined.value[k], server[k]) for k in server}

    def notes(self, server: State, combined: Any, info: RoundInfo) -> dict[str, Any]:
        weights: list[float] = combined.group.tolist()
        return {"weight_per_model": weights}

    def studies(self, run: FinishedRun) -> list[Study]:
        answers = run.ask(partial(membership, run.server), studies.trained(run))
        return [
            studies.shares(
                "Which model each client joined",
                "The one with the least loss on the client's training data, after the last round.",
                quantity="membership",
                parts=[f"model {k + 1}" for k in range(self.models)],
                values={client: rows[0] for client, rows in answers.items()},
                total=len(run.setting.store),
            )
        ]

    def personalize(self, down: State, client: State, data: ClientData, task: Task) -> State:
        return chosen(down, self.choose(down, data["choose"], task))

    def choose(self, bank: State, batches: Batches, task: Task) -> Tensor:
        """Return the model with the smallest loss on the training data, one-hot.

        Args:
            bank: All models of the server.
            batches: Batches of one client.
            task: The network and its loss.
        """
        losses = [mean_loss(task, member(bank, k), batches) for k in range(self.models)]
        one_hot: Tensor = F.one_hot(torch.stack(losses).argmin(), self.models)
        return one_hot.to(losses[0].dtype)


def _where_any(weight: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """Take the new model where anybody has trained it; an empty cluster keeps the old one."""
    return torch.where((weight > 0).view(-1, *[1] * (new.ndim - 1)), new, old)
