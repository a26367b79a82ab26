"""FedPer: average the base, keep the last layers.

Arivazhagan et al., "Federated Learning with Personalization Layers", 2019.
https://arxiv.org/abs/1912.00818
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from motet._core.keys import Key
from motet._core.selectors import Selector
from motet._core.tree import State, pick
from motet._training.batching import Plan
from motet._training.fitting import fit
from motet.errors import RequestError
from motet.method import Card, ClientData
from motet.methods._bases.partial_sharing import PartialSharing, split_warnings
from motet.task import Task


@dataclass(frozen=True, kw_only=True)
class FedPer(PartialSharing):
    """Base and personalization layers are trained jointly; only the base is averaged.

    Attributes:
        personal: The personalization layers W_P. `Blocks(last=k)` is the paper's K_P = k; an empty
            tuple is FedAvg, every module is Local.
        head_init: "independent" draws W_P for each client (the paper); "common" starts all
            from one draw.
        head_epochs: Epochs on W_P alone at the start of each round, the base frozen; 1 is the
            fine-tuning variant of the paper's appendix A.3.

    Example:
        >>> import motet
        >>> motet.FedPer(personal=("head",)).name
        'fedper'
    """

    personal: Selector = ("head",)
    head_init: Literal["independent", "common"] = "independent"
    head_epochs: int = 0

    name: ClassVar[str] = "fedper"
    card: ClassVar[Card] = Card(
        title="FedPer",
        paper="Arivazhagan et al.",
        year=2019,
        link="https://arxiv.org/abs/1912.00818",
        idea="Average the base layers, keep the last layers.",
        shared="the base",
        private="the last layers",
        down="base",
        up="base",
        new_client="draws a head and trains it, base frozen",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.head_init not in ("independent", "common"):
            raise RequestError(f'head_init= is "independent" or "common"; got {self.head_init!r}.')

    def plans(self) -> dict[str, Plan]:
        head = Plan(epochs=self.head_epochs, batch_size=self.batch_size, stream="head")
        return ({"head": head} if self.head_epochs else {}) | super().plans()

    def check(self, task: Task, clients: Sequence[str]) -> list[str]:
        return split_warnings(self, task)

    def personal_names(self, task: Task) -> frozenset[str]:
        return task.select(self.personal)

    def init_client(self, task: Task, initial: State, key: Key) -> State:
        kept = super().init_client(task, initial, key)
        if self.head_init == "common" or not kept:
            return kept
        # Statistics and norm layers that a policy keeps at the client start from the common model
        # all the same.
        return kept | pick(task.init(key), self.personal_names(task))

    def client_update(
        self, down: State, client: State, data: ClientData, task: Task
    ) -> tuple[State, State]:
        if self.head_epochs:
            # The base is frozen with its running statistics, also those that stay at the client.
            head = self.personal_names(task)
            # Deviates: The frozen base runs in training mode in the head-only epoch.
            fitted = fit(task, down | client, data["head"], self.optimizer, train=head)
            client = pick(fitted, client)
        # Deviates: A client that is not sampled keeps its head.
        return super().client_update(down, client, data, task)
