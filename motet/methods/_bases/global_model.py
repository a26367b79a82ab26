"""One global model, averaged as in FedAvg; a subclass says what a client keeps beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from motet._core.keys import Key
from motet._core.tree import State
from motet.method import Method, RoundInfo
from motet.methods._bases.server_step import first_moments, server_step, shared_part
from motet.optim import Optimizer
from motet.task import Task


@dataclass(frozen=True, kw_only=True)
class GlobalModel(Method[State, State, State, State]):
    """Server, broadcast and upload are whole models.

    Attributes:
        server_optimizer: Steps on the averaged change of the cohort, as if it were a gradient. None
            takes the average itself.
    """

    server_optimizer: Optimizer | None = None

    def init_server(self, task: Task, initial: State, clients: Sequence[str], key: Key) -> State:
        return initial | first_moments(self.server_optimizer, initial, task)

    def init_client(self, task: Task, initial: State, key: Key) -> State:
        return initial

    def broadcast(self, server: State, info: RoundInfo) -> State:
        return shared_part(server)

    def server_update(self, server: State, combined: State, info: RoundInfo, task: Task) -> State:
        return server_step(self.server_optimizer, server, combined, task)
