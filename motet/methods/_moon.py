"""MOON: representations are drawn to the global model's, and away from the client's last ones.

Li et al., "Model-Contrastive Federated Learning", CVPR 2021.
https://arxiv.org/abs/2103.16257
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.nn.functional import cosine_similarity, softplus

from motet._core import tree
from motet._core.keys import Key
from motet._core.selectors import module_path
from motet._core.tree import State, drop, pick, prefixed, slot
from motet._training.fitting import fit
from motet.errors import RequestError
from motet.method import Card, ClientData
from motet.methods._bases.stateful_fedavg import Remembering, model_in
from motet.task import Batch, Loss, Task

PREVIOUS = "previous"  # the model that the client sent up last
SEEN = "seen"  # whether there is one


@dataclass(frozen=True, kw_only=True)
class Moon(Remembering):
    """The loss plus mu times a contrast of three representations of each example.

    Attributes:
        mu: Weight of the contrast; 0 is FedAvg. The paper's best are 5 and 1.
        tau: Temperature of the contrast: a large one lets it fade.
        features: The module whose input is the representation z; "head" is the last block. Where
            the network has a projection head, name the module behind it.

    Example:
        >>> import motet
        >>> motet.Moon().name
        'moon'
    """

    mu: float = 1.0
    tau: float = 0.5
    features: str = "head"

    name: ClassVar[str] = "moon"
    card: ClassVar[Card] = Card(
        title="MOON",
        paper="Li et al., CVPR",
        year=2021,
        link="https://arxiv.org/abs/2103.16257",
        idea="Keep representations close to the global model's and off the client's last ones.",
        shared="the whole model",
        private="the client's last model",
        down="1",
        up="1",
        new_client="gets the global model",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.mu >= 0 and self.tau > 0):
            raise RequestError(
                f"mu= is 0 or more and tau= above 0; got mu={self.mu} and tau={self.tau}."
            )

    def check(self, task: Task, clients: Sequence[str]) -> list[str]:
        module = module_path(task.skeleton, self.features)  # refuses a name that does not exist
        alarms = ["moon with mu=0 is fedavg; give mu= above 0."] if self.mu == 0 else []
        if module_path(task.skeleton, "input") == module:
            alarms.append(
                f'moon contrasts the input of "{self.features}", which is the data themselves, so '
                "it is fedavg; name a later module in features=."
            )
        return [*super().check(task, clients), *alarms]

    def init_client(self, task: Task, initial: State, key: Key) -> State:
        shared = drop(initial, self.private_names(task))
        unseen = {SEEN: torch.zeros((), dtype=torch.bool)}
        kept = super().init_client(task, initial, key)
        return kept | prefixed(PREVIOUS, tree.clone(shared)) | unseen

    def client_update(
        self, down: State, client: State, data: ClientData, task: Task
    ) -> tuple[State, State]:
        received = model_in(down | client, task)
        # A client without a last model takes the received one: the contrast then has no gradient.
        last = tree.where(client[SEEN], slot(PREVIOUS, client), down)
        module = module_path(task.skeleton, self.features)
        loss = Contrasted(task, module, self.mu, self.tau)
        given = (received, received | last)
        trained = fit(task, received, data["train"], self.optimizer, loss=loss, given=given)
        up = pick(trained, down)
        # Deviates: One last model is kept, not a pool.
        remembered = prefixed(PREVIOUS, tree.clone(up)) | {SEEN: client[SEEN] | True}
        return up, client | pick(trained, client) | remembered


@dataclass(frozen=True)
class Contrasted:
    """The loss plus strength times -log(e^g / (e^g + e^p)).

    g and p are the cosines of an example's representation with the global and the last model's,
    over the temperature.
    """

    task: Task
    module: str
    strength: float
    temperature: float

    def __call__(self, state: State, batch: Batch, received: State, last: State) -> Loss:
        """Compute it. The other two models are frozen, and run in evaluation mode."""
        # Deviates: There is no projection head.
        loss, z = self.task.loss_and_features(state, batch, self.module)
        near, far = (
            cosine_similarity(z, self.task.features(model, batch.x, self.module)) / self.temperature
            for model in (received, last)
        )
        contrast = softplus(far - near) * batch.weight
        return loss + self.strength * contrast.sum() / batch.weight.sum().clamp(min=1)
