"""pFedHN: a hypernetwork on the server makes every client's model from an embedding of the client.

Shamsian et al., "Personalized Federated Learning using Hypernetworks", ICML 2021.
https://arxiv.org/abs/2103.04628
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from motet._core import tree
from motet._core.aggregation.mean import Gather, Reduce
from motet._core.gradient import grad
from motet._core.keys import Key
from motet._core.points import Point
from motet._core.tree import State, dot, drop, subtract
from motet._training.fitting import fit
from motet.errors import RequestError
from motet.method import Card, ClientData, Method, PerClient, RoundInfo
from motet.methods._bases.hypernetwork import draw_embeddings, draw_hypernetwork, generate
from motet.optim import Optimizer, Sgd
from motet.task import Task

EMBEDDINGS = "embeddings"


class Maker(NamedTuple):
    """What the server keeps: the hypernetwork, all embeddings, and what cannot be made."""

    hyper: State
    target: State  # names and shapes of what is made
    buffers: State
    moments: State  # of the server's optimizer


@dataclass(frozen=True, kw_only=True)
class PFedHN(Method[Maker, State, State, State]):
    """Models are generated: theta_i = h(e_i; phi). The hypernetwork never travels.

    Attributes:
        embedding: Size of a client's embedding; None is 1 + a quarter of the number of clients. 0
            leaves one model for all, which is FedAvg with equal weights.
        hidden: Widths of the hypernetwork's hidden layers.
        server_optimizer: Steps phi and the embeddings along the clients' updates.

    Example:
        >>> import motet
        >>> motet.PFedHN().name
        'pfedhn'
    """

    embedding: int | None = None
    hidden: tuple[int, ...] = (100, 100)
    server_optimizer: Optimizer = Sgd(lr=0.1, momentum=0.9, clip=50.0)
    reduce: Reduce = Gather()

    name: ClassVar[str] = "pfedhn"
    # The authors score models as they were generated, without local steps.
    reported: ClassVar[Point] = "after_broadcast"
    stateful: ClassVar[bool] = False
    card: ClassVar[Card] = Card(
        title="pFedHN",
        paper="Shamsian et al., ICML",
        year=2021,
        link="https://arxiv.org/abs/2103.04628",
        idea="A hypernetwork on the server makes every client's model.",
        shared="the hypernetwork, through the models it makes",
        private="nothing: the client's embedding is on the server",
        down="1",
        up="1",
        new_client="gets the model of the mean embedding and fine-tunes it",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.embedding is not None and self.embedding < 0:
            raise RequestError(f"PFedHN(embedding=) is a size: 0 or more; got {self.embedding}.")
        if self.embedding == 0 and self.hidden:
            raise RequestError("PFedHN(embedding=0) has nothing to put into hidden layers.")

    def check(self, task: Task, clients: Sequence[str]) -> list[str]:
        neutral = "pfedhn: without an embedding all models are one: FedAvg with equal weights."
        return [neutral] if self.embedding == 0 else []

    def init_server(self, task: Task, initial: State, clients: Sequence[str], key: Key) -> Maker:
        size = 1 + len(clients) // 4 if self.embedding is None else self.embedding
        target = task.trainable(initial)
        hyper = draw_hypernetwork(target, size, self.hidden, key.fold("hypernetwork"))
        hyper[EMBEDDINGS] = draw_embeddings(
            len(clients), size, key.fold("embeddings"), tree.float_type(target)
        )
        moments = dict(tree.flatten(self.server_optimizer.init(hyper)))
        shapes = tree.zeros_like(target)
        return Maker(hyper, shapes, drop(initial, target), moments)

    def init_client(self, task: Task, initial: State, key: Key) -> State:
        return {}

    def broadcast(self, server: Maker, info: RoundInfo) -> PerClient:
        place = {client: i for i, client in enumerate(info.clients)}
        everybody = server.hyper[EMBEDDINGS]
        return PerClient(
            {
                c: made(server, everybody[place[c]] if c in place else everybody.mean(0))
                for c in info.cohort
            }
        )

    def client_update(
        self, down: State, client: State, data: ClientData, task: Task
    ) -> tuple[State, State]:
        return fit(task, down, data["train"], self.optimizer), client

    def server_update(
        self, server: Maker, combined: dict[str, State], info: RoundInfo, task: Task
    ) -> Maker:
        place = {client: i for i, client in enumerate(info.clients)}
        rows = {place[client]: task.trainable(upload) for client, upload in combined.items()}
        grads = grad(_agreement)(server.hyper, server.target, changes(server, rows))
        template = self.server_optimizer.init(server.hyper)
        moments = tree.unflatten(template, server.moments)
        hyper, moments = self.server_optimizer.step(grads, moments, server.hyper, 1.0)
        return server._replace(
            hyper=hyper,
            moments=dict(tree.flatten(moments)),
            # Deviates: Buffers are averaged.
            buffers=_mean([drop(upload, server.target) for upload in combined.values()]),
        )

    def adapt(self, down: State, client: State, data: ClientData, task: Task) -> State:
        return fit(task, down, data["adapt"], self.optimizer)

    def personalize(self, down: State, client: State, data: ClientData, task: Task) -> State:
        return client or down

    def after_broadcast(self, down: State, client: State, task: Task) -> State:
        return down

    def after_local(self, down: State, up: State, client: State, task: Task) -> State:
        return up


def made(server: Maker, embedding: Tensor) -> State:
    """Make a client's model; buffers cannot be generated, so they are the mean over clients."""
    return generate(server.hyper, embedding, server.target) | server.buffers


def changes(server: Maker, uploads: dict[int, State]) -> dict[int, State]:
    """Return the change of each client's training."""
    embeddings = server.hyper[EMBEDDINGS]
    return {
        row: subtract(upload, generate(server.hyper, embeddings[row], server.target))
        for row, upload in uploads.items()
    }


def _agreement(hyper: State, target: State, change: dict[int, State]) -> Tensor:
    """Compute minus the mean of <change_i, h(e_i; phi)>, whose gradient is the update."""
    terms = [dot(c, generate(hyper, hyper[EMBEDDINGS][i], target)) for i, c in change.items()]
    # Deviates: Several clients per round are averaged.
    return -torch.stack(terms).mean()


def _mean(states: list[State]) -> State:
    def one(*leaves: Tensor) -> Tensor:
        stacked = torch.stack(leaves)
        exact = stacked.is_floating_point()
        return stacked.double().mean(0).to(stacked.dtype) if exact else stacked.amax(0)

    return tree.tree_map(one, states[0], *states[1:])
