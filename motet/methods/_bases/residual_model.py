"""A shared model and a private one whose outputs add: residual learning, and FedRoD's two heads."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from motet._core import tree
from motet._core.keys import Key
from motet._core.tree import State, pick, prefixed, slot
from motet.errors import CapabilityError
from motet.method import ClientData
from motet.methods._bases.global_model import GlobalModel
from motet.task import Task

OWN = "own"  # where a client's part v lies beside the shared model u


@dataclass(frozen=True, kw_only=True)
class ResidualModel(GlobalModel):
    """Predicts g(x; u) + l(x; v_i), where l is the network itself with v_i in some of its layers.

    v_i starts with an output of 0, or it would mislead the first steps of u.
    """

    one_network: ClassVar[bool] = False

    @abstractmethod
    def own_names(self, task: Task) -> frozenset[str]:
        """Return the names of the tensors of which a client keeps its own, v_i."""

    def check(self, task: Task, clients: Sequence[str]) -> list[str]:
        if task.example is None:
            return []
        model = task.init(Key(0))
        silent = model | slot(OWN, self.init_client(task, model, Key(0)))
        if task.outputs(silent, task.example).any():
            raise CapabilityError(
                f"{self.name} adds a private model that starts with an output of 0, but this "
                "network answers something else when its last layer is 0, or its last layer is "
                "not private; end it in a linear layer, and name that one too."
            )
        return []

    def init_client(self, task: Task, initial: State, key: Key) -> State:
        own = tree.clone(pick(initial, self.own_names(task)))
        last = pick(task.trainable(own), task.select("head"))
        return prefixed(OWN, own | tree.zeros_like(last))

    def personalize(self, down: State, client: State, data: ClientData, task: Task) -> State:
        return down | client

    def after_broadcast(self, down: State, client: State, task: Task) -> State:
        return down | client

    def after_local(self, down: State, up: State, client: State, task: Task) -> State:
        return up | client

    def predict(self, personal: State, x: Tensor, task: Task) -> Tensor:
        shared, own = both(personal)
        outputs = task.outputs(shared, x) + task.outputs(own, x)
        return task.criterion.probabilities(outputs)


def both(state: State) -> tuple[State, State]:
    """Take the two networks apart; the private one borrows the shared layers it has none of."""
    shared = {k: v for k, v in state.items() if not k.startswith(f"{OWN}/")}
    return shared, shared | slot(OWN, state)
