"""FedDyn: every client's loss is corrected so that its optimum becomes the global one.

Acar et al., "Federated Learning Based on Dynamic Regularization", ICLR 2021.
https://arxiv.org/abs/2111.04263
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from motet._core.aggregation.mean import Mean, Reduce
from motet._core.keys import Key
from motet._core.tree import State, drop, pick, prefixed, slot, tree_map
from motet._training.fitting import fit
from motet._training.penalties import TiltedAndPulled
from motet.errors import RequestError
from motet.method import Card, ClientData, RoundInfo
from motet.methods._bases.server_step import server_step, shared_part
from motet.methods._bases.stateful_fedavg import Remembering, model_in
from motet.task import Task

DUAL = "dual"  # h at the server, h_i at a client; neither ever travels


@dataclass(frozen=True, kw_only=True)
class FedDyn(Remembering):
    """Clients minimise f_i(w) - <h_i, w> + alpha / 2 ||w - w^t||^2, where h_i adds up what is left.

    Attributes:
        alpha: Strength of the pull towards w^t, and the step of h_i; the paper tries 0.1, 0.01 and
            0.001. The server divides by it, so it cannot be 0.

    Example:
        >>> import motet
        >>> motet.FedDyn().name
        'feddyn'
    """

    reduce: Reduce = Mean(weights="uniform")
    alpha: float = 0.1

    name: ClassVar[str] = "feddyn"
    card: ClassVar[Card] = Card(
        title="FedDyn",
        paper="Acar et al., ICLR",
        year=2021,
        link="https://arxiv.org/abs/2111.04263",
        idea="Correct each client's loss until its optimum is the global one.",
        shared="the whole model",
        private="the client's h_i, of the model's size",
        down="1",
        up="1",
        new_client="gets the global model",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.alpha > 0:
            raise RequestError(
                f"alpha= is above 0, because the server divides by it; got {self.alpha}. "
                "Without it, use fedavg."
            )

    def init_server(self, task: Task, initial: State, clients: Sequence[str], key: Key) -> State:
        server = super().init_server(task, initial, clients, key)
        return server | self.zeros_in(DUAL, initial, task)

    def init_client(self, task: Task, initial: State, key: Key) -> State:
        client = super().init_client(task, initial, key)
        return client | self.zeros_in(DUAL, initial, task)

    def broadcast(self, server: State, info: RoundInfo) -> State:
        return drop(shared_part(server), prefixed(DUAL, slot(DUAL, server)))

    def client_update(
        self, down: State, client: State, data: ClientData, task: Task
    ) -> tuple[State, State]:
        dual = slot(DUAL, client)
        given = (tree_map(torch.neg, dual), pick(down, dual))
        loss, model = TiltedAndPulled(task, self.alpha), model_in(down | client, task)
        trained = fit(task, model, data["train"], self.optimizer, loss=loss, given=given)
        # Deviates: alpha is one number for all clients.
        dual = {k: h - self.alpha * (trained[k] - down[k]) for k, h in dual.items()}
        return pick(trained, down), client | pick(trained, client) | prefixed(DUAL, dual)

    def server_update(self, server: State, combined: State, info: RoundInfo, task: Task) -> State:
        step = self.alpha * len(info.cohort) / len(info.clients)
        old = slot(DUAL, server)
        dual = {k: h - step * (combined[k] - server[k]) for k, h in old.items()}
        # Deviates: Running statistics are averaged.
        target = combined | {k: combined[k] - h / self.alpha for k, h in dual.items()}
        kept = prefixed(DUAL, dual)
        # Deviates: A server optimizer steps towards w^{t+1} instead of jumping there.
        return server_step(self.server_optimizer, drop(server, kept), target, task) | kept
