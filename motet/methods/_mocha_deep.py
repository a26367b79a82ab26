"""MOCHA for networks: one model per client, coupled by a relation that is learnt, trained by SGD.

After Smith et al., "Federated Multi-Task Learning", NeurIPS 2017. https://arxiv.org/abs/1705.10467
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from motet._core import studies
from motet._core.aggregation.mean import Gather, Reduce
from motet._core.keys import Key
from motet._core.studies import FinishedRun, Study
from motet._core.tree import State, dot, pick
from motet._training.batching import Batches
from motet._training.fitting import fit
from motet.errors import RequestError
from motet.method import Card, ClientData, Method, PerClient, RoundInfo
from motet.methods._bases.relations import (
    Coupling,
    Relation,
    Tasks,
    coupling,
    learnt_relation,
    mean_relation,
    replaced,
    to_the_mean,
)
from motet.task import Batch, Loss, Task


@dataclass(frozen=True, kw_only=True)
class MochaDeep(Method[Tasks, State, Coupling, State]):
    """Minimises the sum of f_i(w_i) plus lam tr(W Omega W^T), by local SGD on each client's terms.

    Attributes:
        lam: Strength of the coupling. 0 is Local.
        relation: "learnt" from the models themselves, or "mean": all clients to the mean.
        relate_every: Rounds between two updates of a learnt relation.

    Example:
        >>> import motet
        >>> motet.MochaDeep(lam=0.02).name
        'mocha-deep'
    """

    lam: float = 0.02
    relation: Relation = "learnt"
    relate_every: int = 1
    reduce: Reduce = Gather()

    name: ClassVar[str] = "mocha-deep"
    card: ClassVar[Card] = Card(
        title="MOCHA (deep)",
        paper="after Smith et al., NeurIPS",
        year=2017,
        link="https://arxiv.org/abs/1705.10467",
        idea="One network per client, coupled by a relation that is learnt.",
        shared="the relation between clients",
        private="a model (the server sees it, too)",
        down="1",
        up="1",
        new_client="starts from the mean of all models and is pulled towards it",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.lam >= 0:
            raise RequestError(f"lam= must be 0 or more; got {self.lam}.", option="lam")
        if self.relation not in ("learnt", "mean") or self.relate_every < 1:
            raise RequestError(
                'relation= is "learnt" or "mean", and relate_every= counts rounds; '
                f"got {self.relation!r} and {self.relate_every}."
            )

    def check(self, task: Task, clients: Sequence[str]) -> list[str]:
        return (
            [f"{self.name} with lam=0 couples no clients, which is local; give lam= above 0."]
            if self.lam == 0
            else []
        )

    def init_server(self, task: Task, initial: State, clients: Sequence[str], key: Key) -> Tasks:
        params = task.trainable(initial)
        models = {k: v.expand(len(clients), *v.shape).clone() for k, v in params.items()}
        # Equal models have no relation to learn yet: all start around the mean.
        return Tasks(models, mean_relation(len(clients)))

    def init_client(self, task: Task, initial: State, key: Key) -> State:
        return initial

    def broadcast(self, server: Tasks, info: RoundInfo) -> PerClient:
        place = {client: i for i, client in enumerate(info.clients)}
        return PerClient(
            {
                c: coupling(server, place[c]) if c in place else to_the_mean(server)
                for c in info.cohort
            }
        )

    def client_update(
        self, down: Coupling, client: State, data: ClientData, task: Task
    ) -> tuple[State, State]:
        own = self._coupled_fit(client, down, data["train"], task)
        # Deviates: Buffers stay with the client.
        return task.trainable(own), own

    def server_update(
        self, server: Tasks, combined: dict[str, State], info: RoundInfo, task: Task
    ) -> Tasks:
        models = replaced(server.models, combined, info.clients)
        due = (info.number + 1) % self.relate_every == 0
        learn = self.relation == "learnt" and due and len(info.clients) > 1
        return Tasks(models, learnt_relation(models) if learn else server.omega)

    def notes(self, server: Tasks, combined: Any, info: RoundInfo) -> dict[str, Any]:
        relation: list[list[float]] = server.omega.tolist()
        return {"omega": relation}

    def studies(self, run: FinishedRun) -> list[Study]:
        return [
            studies.matrix(
                "How the clients' models are coupled",
                "Omega: a negative entry pulls two clients' models together, a positive one apart.",
                quantity="coupling",
                clients=sorted(run.setting.federation.clients),
                frames=((f"round {note['round']}", note["omega"]) for note in run.notes),
            )
        ]

    def adapt(self, down: Coupling, client: State, data: ClientData, task: Task) -> State:
        # -b_i / Omega_ii is where the coupling alone would put the client.
        start = {k: -v / down.own for k, v in down.others.items()}
        return self._coupled_fit(client | start, down, data["adapt"], task)

    def personalize(self, down: Coupling, client: State, data: ClientData, task: Task) -> State:
        return client

    def after_broadcast(self, down: Coupling, client: State, task: Task) -> State:
        return client

    def after_local(self, down: Coupling, up: State, client: State, task: Task) -> State:
        return client

    def _coupled_fit(self, own: State, down: Coupling, batches: Batches, task: Task) -> State:
        loss = CoupledLoss(task, self.lam)
        return fit(task, own, batches, self.optimizer, loss=loss, given=(down,))


@dataclass(frozen=True)
class CoupledLoss:
    """The client's terms of the joint objective: f(w) + lam (Omega_ii ||w||^2 + 2 <w, b_i>)."""

    task: Task
    strength: float

    def __call__(self, state: State, batch: Batch, down: Coupling) -> Loss:
        """Compute it; its gradient is the joint one."""
        w = pick(state, down.others)
        squared = torch.stack([v.square().sum() for v in w.values()]).sum()
        coupled = down.own * squared + 2 * dot(w, down.others)
        return self.task.loss(state, batch) + self.strength * coupled
