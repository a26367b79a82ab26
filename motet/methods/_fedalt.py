"""FedAlt: train the personal part, then the shared part.

Pillutla et al., "Federated Learning with Partial Model Personalization", ICML 2022.
https://arxiv.org/abs/2204.03809
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from motet._core.tree import State, drop, pick
from motet._training.batching import Plan
from motet._training.fitting import fit
from motet.method import Card, ClientData
from motet.methods._bases.partial_personalization import PartialPersonalization, joined
from motet.task import Task


@dataclass(frozen=True, kw_only=True)
class FedAlt(PartialPersonalization):
    """Alternating updates: v with u frozen as received, then u with v frozen at its new value.

    Attributes:
        personal_epochs: Epochs of the phase on v (tau_v); `epochs` or `steps` if nothing is given.
        personal_steps: Steps of the phase on v, instead of epochs.
        shared_epochs: Epochs of the phase on u (tau_u); `epochs` or `steps` if nothing is given.
        shared_steps: Steps of the phase on u, instead of epochs.
        replay: Let both phases walk the same batches, those FedSim would walk; otherwise the phase
            on v shuffles for itself.

    Example:
        >>> import motet
        >>> motet.FedAlt().name
        'fedalt'
    """

    personal_epochs: int | None = None
    personal_steps: int | None = None
    shared_epochs: int | None = None
    shared_steps: int | None = None
    replay: bool = False

    name: ClassVar[str] = "fedalt"
    card: ClassVar[Card] = Card(
        title="FedAlt",
        paper="Pillutla et al., ICML",
        year=2022,
        link="https://arxiv.org/abs/2204.03809",
        idea="Train the personal part, then the shared part; average the shared part.",
        shared="all but the personal part",
        private="the personal part: any layers, adapters, a second model",
        down="shared part",
        up="shared part",
        new_client="trains the personal part, shared part frozen",
    )

    def plans(self) -> dict[str, Plan]:
        own_stream = "train" if self.replay else "personal"
        return {
            "personal": self._phase(self.personal_epochs, self.personal_steps, own_stream),
            "shared": self._phase(self.shared_epochs, self.shared_steps, "train"),
        }

    def _phase(self, epochs: int | None, steps: int | None, stream: str) -> Plan:
        if epochs is None and steps is None:
            epochs, steps = self.epochs, self.steps
        # Deviates: personal_steps counts steps exactly.
        return Plan(epochs=epochs, steps=steps, batch_size=self.batch_size, stream=stream)

    def client_update(
        self, down: State, client: State, data: ClientData, task: Task
    ) -> tuple[State, State]:
        personal, model = self.personal_part(task), joined(down, client)
        model = self.fit_personal(model, client, data["personal"], task, personal)
        shared = drop(model, personal)
        model = fit(task, model, data["shared"], self.optimizer, train=shared.keys())
        return pick(model, down), self.kept(model, client, task)
