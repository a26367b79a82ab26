"""FedRecon: personal parameters that are never stored; each round rebuilds them.

Singhal et al., "Federated Reconstruction: Partially Local Federated Learning", NeurIPS 2021.
https://arxiv.org/abs/2102.03448
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from motet._core.selectors import Selector
from motet._core.tree import State, pick
from motet._training.batching import Batches, Plan
from motet._training.fitting import fit
from motet.errors import CapabilityError
from motet.method import Card, ClientData
from motet.methods._bases.partial_sharing import PartialSharing, split_warnings
from motet.optim import Optimizer
from motet.task import Task


@dataclass(frozen=True, kw_only=True)
class FedRecon(PartialSharing):
    """Rebuild v on the support examples, u frozen; then train u on the query examples, v frozen.

    Attributes:
        personal: The personal part v. Nothing is FedAvg.
        recon_epochs: Epochs that rebuild v from the common start, whenever it is needed.
        recon_optimizer: Rebuilds v; `optimizer`, which trains u, if None.
        epochs: Epochs on u per round.
        disjoint: Whether support and query are the two halves of a client's training data, the
            same halves in every round. False uses all of them for both, which is FedAlt with
            `keep_personal=False`.

    Example:
        >>> import motet
        >>> motet.FedRecon(personal=("head",)).name
        'fedrecon'
    """

    personal: Selector = ("head",)
    recon_epochs: int = 5
    recon_optimizer: Optimizer | None = None
    disjoint: bool = True

    name: ClassVar[str] = "fedrecon"
    tuned_phases: ClassVar[tuple[str, ...]] = ("support",)
    stateful: ClassVar[bool] = False  # what a client keeps, the common start of v, never changes
    weighed_phase: ClassVar[str | None] = "query"
    card: ClassVar[Card] = Card(
        title="FedRecon",
        paper="Singhal et al., NeurIPS",
        year=2021,
        link="https://arxiv.org/abs/2102.03448",
        idea="Rebuild the personal part from scratch, then train the shared part for it.",
        shared="all but the personal part",
        private="the personal part, rebuilt whenever it is needed",
        down="shared part",
        up="shared part",
        new_client="rebuilds the personal part, like all clients",
    )

    def plans(self) -> dict[str, Plan]:
        # Deviates: The halves are drawn by a key.
        half = (1, 2) if self.disjoint else None
        size = self.batch_size
        query = Plan(epochs=self.epochs, steps=self.steps, batch_size=size, part=half)
        return {"support": self._support((0, 2) if self.disjoint else None), "query": query}

    def adapt_plans(self) -> dict[str, Plan]:
        # Deviates: At serving all training data support.
        return {"support": self._support(None)}  # nothing is trained on a query: all data support

    def _support(self, part: tuple[int, int] | None) -> Plan:
        epochs, size = self.recon_epochs, self.batch_size
        return Plan(epochs=epochs, batch_size=size, part=part, stream="personal")

    def check(self, task: Task, clients: Sequence[str]) -> list[str]:
        stuck = "fedrecon with recon_epochs=0 leaves v at its start, so nothing is personal."
        return split_warnings(self, task) + ([stuck] if self.recon_epochs == 0 else [])

    def personal_names(self, task: Task) -> frozenset[str]:
        return task.select(self.personal)

    def client_update(
        self, down: State, client: State, data: ClientData, task: Task
    ) -> tuple[State, State]:
        model = self._reconstruct(down, client, data["support"], task)
        # Deviates: Joint training of u and v on the query is left out.
        model = fit(task, model, data["query"], self.optimizer, train=down)
        return pick(model, down), client

    def adapt(self, down: State, client: State, data: ClientData, task: Task) -> State:
        return client

    def personalize(self, down: State, client: State, data: ClientData, task: Task) -> State:
        return self._reconstruct(down, client, data["support"], task)

    def after_local(self, down: State, up: State, client: State, task: Task) -> State:
        raise CapabilityError(
            "fedrecon forgets its personal part after local training, so there is no predictor "
            "then; ask for after_adapt."
        )

    def _reconstruct(self, down: State, client: State, batches: Batches, task: Task) -> State:
        # Deviates: v starts from one common draw each time.
        optimizer = self.recon_optimizer or self.optimizer
        return fit(task, down | client, batches, optimizer, train=client)
