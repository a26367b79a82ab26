"""FedBN: normalisation layers stay local, for clients whose inputs look different.

Li et al., "FedBN: Federated Learning on Non-IID Features via Local Batch Normalization", ICLR 2021.
https://arxiv.org/abs/2102.07623
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from motet._core.aggregation.mean import Mean, Reduce
from motet._core.keys import Key
from motet._core.tree import State, drop, pick, prefixed, slot
from motet._training.fitting import fit
from motet.method import Card, ClientData, RoundInfo
from motet.methods._bases.global_model import GlobalModel
from motet.methods._bases.partial_sharing import norm_names
from motet.task import Task

NORM = "norm"  # where the server keeps the clients' average, which no training client receives


@dataclass(frozen=True, kw_only=True)
class FedBN(GlobalModel):
    """All but the normalisation layers is averaged; those are found by type, never by name.

    Attributes:
        average_norm: Whether clients also send their normalisation layers up. Their average goes
            to clients that have none of their own yet, never to one that trains. False keeps them
            at home, as the authors do: a new client then starts from the initial ones.
        adapt_epochs: Epochs on its normalisation layers, the rest frozen, of a client that has
            never trained; with 0 it is served the average as it is.

    Example:
        >>> import motet
        >>> motet.FedBN().name
        'fedbn'
    """

    average_norm: bool = True
    reduce: Reduce = Mean(weights="uniform")

    name: ClassVar[str] = "fedbn"
    card: ClassVar[Card] = Card(
        title="FedBN",
        paper="Li et al., ICLR",
        year=2021,
        link="https://arxiv.org/abs/2102.07623",
        idea="Average all but the normalisation layers.",
        shared="all but the normalisation layers",
        private="normalisation layers with their statistics",
        down="all but norm layers",
        up="1",
        new_client="takes the average normalisation layers and trains them, the rest frozen",
    )

    def check(self, task: Task, clients: Sequence[str]) -> list[str]:
        if norm_names(task, "local_layers"):
            return []
        return [
            "FedBN without norm layers is FedAvg, and this network has none; use one that "
            "normalises, such as a resnet-18."
        ]

    def init_server(self, task: Task, initial: State, clients: Sequence[str], key: Key) -> State:
        norm = self.init_client(task, initial, key)
        shared = super().init_server(task, drop(initial, norm), clients, key)
        return shared | (prefixed(NORM, norm) if self.average_norm else {})

    def init_client(self, task: Task, initial: State, key: Key) -> State:
        return pick(initial, norm_names(task, "local_layers"))

    def broadcast(self, server: State, info: RoundInfo) -> State:
        down = super().broadcast(server, info)
        return down if info.serving else _shared(down)

    def client_update(
        self, down: State, client: State, data: ClientData, task: Task
    ) -> tuple[State, State]:
        trained = fit(task, _shared(down) | client, data["train"], self.optimizer)
        # Deviates: Clients upload their normalisation layers.
        norm = pick(trained, client)
        return drop(trained, norm) | (prefixed(NORM, norm) if self.average_norm else {}), norm

    def server_update(self, server: State, combined: State, info: RoundInfo, task: Task) -> State:
        # Deviates: A server optimizer steps on the shared tensors only.
        stepped = super().server_update(_shared(server), _shared(combined), info, task)
        return stepped | drop(combined, _shared(combined))

    def adapt(self, down: State, client: State, data: ClientData, task: Task) -> State:
        model = _shared(down) | (slot(NORM, down) or client)
        return pick(fit(task, model, data["adapt"], self.optimizer, train=client), client)

    def personalize(self, down: State, client: State, data: ClientData, task: Task) -> State:
        return _shared(down) | client

    def after_broadcast(self, down: State, client: State, task: Task) -> State:
        return _shared(down) | client

    def after_local(self, down: State, up: State, client: State, task: Task) -> State:
        return _shared(up) | client


def _shared(state: State) -> State:
    return {k: v for k, v in state.items() if not k.startswith(f"{NORM}/")}
