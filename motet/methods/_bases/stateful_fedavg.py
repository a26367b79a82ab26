"""FedAvg whose clients remember something: SCAFFOLD's c_i, FedDyn's h_i, MOON's last model.

What they remember lies beside the model, in slots such as "control/head.weight".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from motet._core.tree import State, drop, pick, prefixed, zeros_like
from motet._training.fitting import fit
from motet.method import ClientData
from motet.methods._fedavg import FedAvg
from motet.task import Task


@dataclass(frozen=True, kw_only=True)
class Remembering(FedAvg):
    """One global model; a client's memory steers its training and is not part of its predictor."""

    stateful: ClassVar[bool] = True

    def adapt(self, down: State, client: State, data: ClientData, task: Task) -> State:
        own = self.private_names(task)
        model = model_in(down | client, task)
        adapted = fit(task, model, data["adapt"], self.optimizer, train=own)
        return client | pick(adapted, own)

    def personalize(self, down: State, client: State, data: ClientData, task: Task) -> State:
        return model_in(down | client, task)

    def after_broadcast(self, down: State, client: State, task: Task) -> State:
        return model_in(down | client, task)

    def after_local(self, down: State, up: State, client: State, task: Task) -> State:
        return model_in(up | client, task)

    def zeros_in(self, place: str, initial: State, task: Task) -> State:
        """Return zeros for every shared parameter, under a prefix; buffers have none.

        Args:
            place: The prefix.
            initial: The initial model.
            task: The network and its loss.
        """
        shared = drop(initial, self.private_names(task))
        # Deviates: Running statistics have no control variate.
        return prefixed(place, zeros_like(task.trainable(shared)))


def model_in(state: State, task: Task) -> State:
    """Leave out whatever lies beside the network's own tensors."""
    return pick(state, task.names)
