"""FedBABU: learn the body under one random head that is not trained; fine-tune at the end.

Oh et al., "FedBABU: Toward Enhanced Representation for Federated Image Classification", ICLR 2022.
https://arxiv.org/abs/2106.06042
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from motet._core.aggregation.mean import Mean, Reduce
from motet._core.selectors import Selector
from motet._core.tree import State, drop, pick
from motet._training.fitting import fit
from motet.errors import RequestError
from motet.method import Card, ClientData
from motet.methods._bases.partial_sharing import PartialSharing
from motet.optim import Optimizer
from motet.task import Task

TUNED = ("model", "body", "head")


@dataclass(frozen=True, kw_only=True)
class FedBABU(PartialSharing):
    """Only the body is trained and averaged. All clients hold the same random head.

    Attributes:
        head: What is frozen while the federation trains. Nothing is FedAvg with fine-tuning.
        tune: What is fine-tuned before a client is served: the "model", its "body" or its "head".
        adapt_epochs: Epochs of fine-tuning; with 0 all clients are served the same model.
            `after_broadcast` reports before it, `after_adapt` after it.
        adapt_optimizer: Used for fine-tuning; `optimizer` if None.

    Example:
        >>> import motet
        >>> motet.FedBABU(head=("head",)).name
        'fedbabu'
    """

    head: Selector = ("head",)
    tune: Literal["model", "body", "head"] = "model"
    adapt_optimizer: Optimizer | None = None
    reduce: Reduce = Mean(weights="uniform")

    name: ClassVar[str] = "fedbabu"
    tuned_phases: ClassVar[tuple[str, ...]] = ("adapt",)
    stateful: ClassVar[bool] = False  # what a client keeps, the head, never changes
    card: ClassVar[Card] = Card(
        title="FedBABU",
        paper="Oh et al., ICLR",
        year=2022,
        link="https://arxiv.org/abs/2106.06042",
        idea="Train and average the body under a frozen random head, then fine-tune.",
        shared="the body, and one random head that never changes",
        private="the fine-tuned copy, while it is served",
        down="body",
        up="body",
        new_client="fine-tunes the body and the common head, like all clients",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tune not in TUNED:
            raise RequestError(f"tune= is one of {', '.join(TUNED)}; got {self.tune!r}.")

    def check(self, task: Task, clients: Sequence[str]) -> list[str]:
        frozen = self.personal_names(task) & task.parameters
        if frozen == task.parameters:
            raise RequestError("head= covers the whole network, so fedbabu would train nothing.")
        nothing = "fedbabu that freezes no head is fedavg-ft; name modules in head=."
        alike = "fedbabu with adapt_epochs=0 serves all clients the same model; give some epochs."
        return ([] if frozen else [nothing]) + (
            [] if any(self._adapt_length().values()) else [alike]
        )

    def personal_names(self, task: Task) -> frozenset[str]:
        return task.select(self.head)

    def client_update(
        self, down: State, client: State, data: ClientData, task: Task
    ) -> tuple[State, State]:
        # Not a learning rate of 0: weight decay and momentum would move the head all the same.
        body = drop(down | client, self.personal_names(task))
        trained = fit(task, down | client, data["train"], self.optimizer, train=body)
        return pick(trained, down), pick(trained, client)

    def adapt(self, down: State, client: State, data: ClientData, task: Task) -> State:
        return client  # the fine-tuning in `personalize` is for new clients, too

    def personalize(self, down: State, client: State, data: ClientData, task: Task) -> State:
        model, head = down | client, self.personal_names(task)
        parts = {"model": model, "body": drop(model, head), "head": pick(model, head)}
        # Deviates: Fine-tuning uses the learning rate of the optimizer itself.
        optimizer = self.adapt_optimizer or self.optimizer
        return fit(task, model, data["adapt"], optimizer, train=parts[self.tune])
