"""FedFomo: every client mixes the few models that help it most on its own validation data.

Zhang et al., "Personalized Federated Learning with First Order Model Optimization", ICLR 2021.
https://arxiv.org/abs/2012.08565
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from motet._core import tree
from motet._core.aggregation.mean import Gather, Reduce
from motet._core.keys import Key
from motet._core.schedules import Exponential, Schedule
from motet._core.studies import FinishedRun, Study
from motet._core.tree import State
from motet._training.batching import Plan
from motet._training.fitting import fit
from motet.errors import RequestError
from motet.method import Card, ClientData, Method, PerClient, RoundInfo
from motet.methods._fedfomo.affinity import (
    RULES,
    Rule,
    affinity_history,
    affinity_studies,
    first_affinity,
    round_notes,
    updated,
)
from motet.methods._fedfomo.exchange import Client, Down, Server, Up, deposit, open_bank, positions
from motet.methods._fedfomo.mixing import DISTANCES, Distance
from motet.methods._fedfomo.sending import Sending, Weighting
from motet.methods._fedfomo.update import Judge, Update, update_by_candidates, update_by_leaving_out
from motet.optim import Optimizer, Sgd
from motet.task import Task

PAPER_EPOCHS = 5
# Deviates: The learning rate has no floor.
PAPER_SCHEDULE = Exponential(factor=0.99)
JUDGED_AT_ONCE = 256  # examples; bounds memory, the loss is the mean over all of them


@dataclass(frozen=True, kw_only=True)
class FedFomo(Method[Server, Client, Down, Up]):
    """First-order model optimization: weigh models by validation gain per distance, mix, train.

    Attributes:
        models: M, the models a client evaluates per round, its own among them. 1 is Local with
            roll back; the number of clients evaluates all models.
        explore: epsilon, the chance that a slot is filled at random in the first round. 0 always
            sends the models of highest affinity, 1 random ones.
        decay: Subtracted from epsilon after every round.
        norm: Distance between models in Eq. 3: "l2"; "l1" (the authors' code) or "l2sq" (squared).
        affinity: Start and update of P: "paper" (identity; adds raw w) or "release" (0.1 on the
            diagonal; adds w / |sum of w|).
        fallback: Where nothing helps: "revert" to the model before the last local training, or
            keep the "current" one.
        weighting: "candidate" compares each model with the client's previous one (Eq. 3);
            "leave_one_out" compares averages without a model with the plain average (Eq. 14), so
            that no client's model is sent by itself.
        hierarchical: Also send the averages of this many groups of clients, and their average, as
            the authors' code does; None sends clients' models only. No model is sent twice: a group
            of one client has no average of its own.
        epochs: 5 if neither `epochs` nor `steps` is given.
        adapt_epochs: Local epochs of a client that never trained, before it is served.

    Example:
        >>> import motet
        >>> motet.FedFomo().name
        'fedfomo'
    """

    models: int = 5
    explore: float = 0.3
    decay: float = 0.05
    norm: Distance = "l2"
    affinity: Rule = "paper"
    fallback: Literal["revert", "current"] = "revert"
    weighting: Weighting = "candidate"
    hierarchical: int | None = None
    optimizer: Optimizer = Sgd(lr=0.1, weight_decay=1e-4)
    batch_size: int | None = 50
    schedule: Schedule = PAPER_SCHEDULE
    reduce: Reduce = Gather()

    name: ClassVar[str] = "fedfomo"
    gradients: ClassVar[Mapping[str, float]] = {"val": 0.0}  # forward passes only
    forward_only: ClassVar[tuple[str, ...]] = ("support", "val")
    card: ClassVar[Card] = Card(
        title="FedFomo",
        paper="Zhang et al., ICLR",
        year=2021,
        link="https://arxiv.org/abs/2012.08565",
        idea="Mix the few models that help most on the client's own validation data.",
        shared="the whole model; the server keeps every client's last upload",
        private="the models before and after the last local training",
        down="up to M - 1: its own is there already",
        up="1, and at most M weights",
        new_client="mixes models sent at random by its own data, then trains",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_choice("norm", self.norm, DISTANCES)
        _check_choice("affinity", self.affinity, RULES)
        _check_choice("fallback", self.fallback, ("revert", "current"))
        _check_choice("weighting", self.weighting, ("candidate", "leave_one_out"))
        _ = self.sending  # refuses numbers that do not fit
        if not self.reduce.needs_single_uploads:
            raise RequestError(
                "fedfomo compares single uploads, which a mean hides; leave reduce= at Gather()."
            )

    @classmethod
    def as_released(cls, *, groups: int = 5, **changes: Any) -> FedFomo:
        """Return the variant of the authors' code: L1 distance, its affinity rule, group averages.

        Args:
            groups: Number of groups whose averages are sent.
            **changes: Hyperparameters to change.
        """
        release: dict[str, Any] = {"norm": "l1", "affinity": "release", "hierarchical": groups}
        return cls(**(release | changes))

    @property
    def sending(self) -> Sending:
        """The rules by which the server chooses what a client gets."""
        return Sending(
            models=self.models,
            explore=self.explore,
            decay=self.decay,
            weighting=self.weighting,
            hierarchical=self.hierarchical,
        )

    def plans(self) -> dict[str, Plan]:
        unsaid = self.epochs is None and self.steps is None
        epochs = PAPER_EPOCHS if unsaid else self.epochs
        train = Plan(epochs=epochs, steps=self.steps, batch_size=self.batch_size)
        return {"train": train, "val": Plan(split="val", batch_size=JUDGED_AT_ONCE)}

    def adapt_plans(self) -> dict[str, Plan]:
        return super().adapt_plans() | {
            "support": Plan(batch_size=JUDGED_AT_ONCE, stream="adapt"),
            "val": Plan(split="val", batch_size=JUDGED_AT_ONCE),
        }

    def check(self, task: Task, clients: Sequence[str]) -> list[str]:
        if self.models == 1 and self.hierarchical is None:
            return ["fedfomo with models=1 is Local with roll back: no model is sent."]
        if (self.hierarchical or 0) >= len(clients):
            return [
                f"fedfomo with hierarchical={self.hierarchical} has groups of one client each, "
                f"because there are only {len(clients)} clients: of the averages, only that of all "
                "clients is sent."
            ]
        return []

    def init_server(self, task: Task, initial: State, clients: Sequence[str], key: Key) -> Server:
        return Server(
            models=open_bank(initial, len(clients)),
            uploaded=torch.zeros(len(clients), dtype=torch.bool),
            affinity=first_affinity(len(clients), self.affinity),
        )

    def init_client(self, task: Task, initial: State, key: Key) -> Client:
        return Client(previous=tree.clone(initial), current=tree.clone(initial))

    def broadcast(self, server: Server, info: RoundInfo) -> PerClient:
        return self.sending.downloads(server, info)

    def client_update(
        self, down: Down, client: Client, data: ClientData, task: Task
    ) -> tuple[Up, Client]:
        start, owners, weights = self._update(down, client, Judge(task, [data["val"]]))
        trained = fit(task, start, data["train"], self.optimizer)
        return Up(trained, owners, weights), Client(previous=start, current=trained)

    def server_update(
        self, server: Server, combined: Mapping[str, Up], info: RoundInfo, task: Task
    ) -> Server:
        row = positions(info)
        banked = deposit(server, {row[client]: up.model for client, up in combined.items()})
        return banked._replace(affinity=updated(server.affinity, combined, info, self.affinity))

    def notes(self, server: Server, combined: Mapping[str, Up], info: RoundInfo) -> dict[str, Any]:
        return round_notes(server, combined, info)

    def affinity_history(
        self, clients: Sequence[str], notes: Iterable[Mapping[str, Any]]
    ) -> NDArray[np.float64]:
        """Return the affinities before the first and after every round.

        Args:
            clients: Ids of the clients.
            notes: Notes of the rounds, as in `Run.notes`.

        Returns:
            An array [rounds + 1, clients, clients], clients sorted by id.
        """
        start = first_affinity(len(clients), self.affinity)
        return affinity_history(start, clients, notes)

    def studies(self, run: FinishedRun) -> list[Study]:
        start = first_affinity(len(run.setting.federation.clients), self.affinity)
        return affinity_studies(start, run) if run.notes else []

    def adapt(self, down: Down, client: Client, data: ClientData, task: Task) -> Client:
        # One round as a member has it; where there are no validation data, training data judge.
        start = self._update(down, client, Judge(task, [data["val"], data["support"]])).model
        return Client(previous=start, current=fit(task, start, data["adapt"], self.optimizer))

    def personalize(self, down: Down, client: Client, data: ClientData, task: Task) -> State:
        return self._update(down, client, Judge(task, [data["val"]])).model

    def after_broadcast(self, down: Down, client: Client, task: Task) -> State:
        return client.current  # nothing is replaced before it has been judged

    def after_local(self, down: Down, up: Up, client: Client, task: Task) -> State:
        return up.model

    def _update(self, down: Down, client: Client, judge: Judge) -> Update:
        revert = self.fallback == "revert"
        if self.weighting == "leave_one_out":
            return update_by_leaving_out(down, client, judge, revert=revert)
        return update_by_candidates(down, client, judge, self.norm, revert=revert)


def _check_choice(field: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        options = " or ".join(f'"{option}"' for option in known)
        raise RequestError(f"FedFomo({field}=) must be {options}; got {value!r}.")
