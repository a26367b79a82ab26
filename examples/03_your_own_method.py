"""A method of your own in thirty lines, and the suite that tells whether it is sound.

Ditto's idea: FedAvg, and beside it a private model that is pulled towards the global one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import motet
from motet.method import Card, ClientData, RoundInfo, State, tree
from motet.task import Batch, Loss, Task
from motet.testing import check_method


@dataclass(frozen=True, kw_only=True)
class Tethered(motet.Method[State, State, State, State]):
    """FedAvg, plus a private model tethered to the global one with strength `lam`."""

    lam: float = 0.5
    name: ClassVar[str] = "tethered"
    card: ClassVar[Card] = Card(
        title="Tethered",
        paper="an example",
        year=2026,
        link="",
        idea="A private model, pulled towards the global one.",
        shared="the model",
        private="a second model",
        down="1",
        up="1",
        new_client="starts from the global model and trains its own",
    )

    def init_server(
        self, task: Task, initial: State, clients: Sequence[str], key: motet.Key
    ) -> State:
        return initial

    def init_client(self, task: Task, initial: State, key: motet.Key) -> State:
        return initial

    def broadcast(self, server: State, info: RoundInfo) -> State:
        return server

    def client_update(
        self, down: State, client: State, data: ClientData, task: Task
    ) -> tuple[State, State]:
        upload = motet.fit(task, down, data["train"], self.optimizer)
        # Losses are compared by value, so that a step is traced once and used in every round:
        # numbers may be captured, here by `partial`; tensors are handed over with `given`.
        loss = partial(_tethered, task, self.lam)
        own = motet.fit(task, client, data["train"], self.optimizer, loss=loss, given=(down,))
        return upload, own

    def server_update(self, server: State, combined: State, info: RoundInfo, task: Task) -> State:
        return combined

    def adapt(self, down: State, client: State, data: ClientData, task: Task) -> State:
        loss = partial(_tethered, task, self.lam)
        return motet.fit(task, down, data["adapt"], self.optimizer, loss=loss, given=(down,))

    def personalize(self, down: State, client: State, data: ClientData, task: Task) -> State:
        return client


def _tethered(task: Task, lam: float, own: State, batch: Batch, anchor: State) -> Loss:
    return task.loss(own, batch) + lam / 2 * tree.squared_distance(own, anchor)


if __name__ == "__main__":
    check_method(Tethered())
    print("Tethered passes the conformance suite")
