"""A model of the client's own, pulled towards one that comes down: Ditto, MR-MTL and FedAMP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic

from motet._core.keys import Key
from motet._core.tree import State
from motet._training.batching import Batches
from motet._training.fitting import fit
from motet._training.penalties import Pulled
from motet.errors import RequestError
from motet.method import ClientData, Method, Server
from motet.optim import Optimizer
from motet.task import Task


@dataclass(frozen=True, kw_only=True)
class Tethered(Method[Server, State, State, State], Generic[Server]):
    """What a client keeps, and is served, is a whole model.

    Attributes:
        lam: The pull towards what comes down. 0 is Local.
        personal_optimizer: Trains the client's own model; `optimizer` if None.
    """

    lam: float = 1.0
    personal_optimizer: Optimizer | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.lam >= 0:
            raise RequestError(f"{type(self).__name__}(lam=) must be 0 or more; got {self.lam}.")

    def check(self, task: Task, clients: Sequence[str]) -> list[str]:
        neutral = f"{self.name}: lam=0 cuts the tether, so the personal models are Local's."
        return [neutral] if self.lam == 0 else []

    def init_client(self, task: Task, initial: State, key: Key) -> State:
        return initial

    def adapt(self, down: State, client: State, data: ClientData, task: Task) -> State:
        return self.pulled_fit(down, down, data["adapt"], task)

    def personalize(self, down: State, client: State, data: ClientData, task: Task) -> State:
        return client

    def after_broadcast(self, down: State, client: State, task: Task) -> State:
        return client

    def after_local(self, down: State, up: State, client: State, task: Task) -> State:
        return client

    def pulled_fit(self, own: State, anchor: State, batches: Batches, task: Task) -> State:
        """Train a client's own model, pulled towards the anchor.

        Args:
            own: The client's own model.
            anchor: The model that it is pulled to.
            batches: Batches of one client.
            task: The network and its loss.
        """
        optimizer = self.personal_optimizer or self.optimizer
        return fit(task, own, batches, optimizer, loss=Pulled(task, self.lam), given=(anchor,))
