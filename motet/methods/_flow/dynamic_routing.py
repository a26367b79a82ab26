"""Dynamic routing without a local model: the ablation of Flow's poster.

Panchal and Guan, "Flow: Fine-grained Personalized Federated Learning through Dynamic Routing",
CrossFL 2022. https://arxiv.org/abs/2211.15281
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from motet._core.keys import Key
from motet._core.tree import State, pick
from motet._training.batching import Plan
from motet._training.fitting import fit
from motet.method import Card, ClientData
from motet.methods._flow.routed import RoutedMethod
from motet.methods._flow.routing.network import draw_policy, routed_names, routed_state
from motet.methods._flow.routing.rules import Routing
from motet.task import Batch, Loss, Task


@dataclass(frozen=True, kw_only=True)
class DynamicRouting(RoutedMethod):
    """Two federated sets of parameters and a policy between them, all averaged by the server.

    Instances differ in their route, clients in nothing: what Flow gains over it, it owes to the
    local model.

    Attributes:
        temperature: Of the routing softmax in training. Inference routes hard, so the default is
            nearly hard already: two sets that were only trained as a mixture do not work apart.

    Example:
        >>> import motet
        >>> motet.DynamicRouting().name
        'dynamic-routing'
    """

    temperature: float = 0.1

    name: ClassVar[str] = "dynamic-routing"
    card: ClassVar[Card] = Card(
        title="Dynamic routing",
        paper="Panchal and Guan, CrossFL",
        year=2022,
        link="https://arxiv.org/abs/2211.15281",
        idea="Route every instance between two federated sets of parameters.",
        shared="two models and the routing policy",
        private="nothing",
        down="2 + policy",
        up="2 + policy",
        new_client="gets both models and the policy",
    )

    @property
    def routing(self) -> Routing:
        # Deviates: There is no regulariser.
        return Routing(self.layers, self.hidden, self.temperature, self.recurrence)

    def plans(self) -> dict[str, Plan]:
        return {"train": Plan(epochs=self.passes, steps=self.steps, batch_size=self.batch_size)}

    def adapt_plans(self) -> dict[str, Plan]:
        return {}

    def init_server(self, task: Task, initial: State, clients: Sequence[str], key: Key) -> State:
        # Drawn by another key: two equal sets would stay equal, and no route would matter.
        second = pick(task.init(key.fold("second")), routed_names(task, self.routing))
        return routed_state(initial, second, draw_policy(self.routed(task), key.fold("policy")))

    def client_update(
        self, down: State, client: State, data: ClientData, task: Task
    ) -> tuple[State, State]:
        loss = partial(_routed_loss, self, task)
        return fit(self.routed(task), down, data["train"], self.optimizer, loss=loss), client

    def personalize(self, down: State, client: State, data: ClientData, task: Task) -> State:
        return _completed(down)

    def after_broadcast(self, down: State, client: State, task: Task) -> State:
        return _completed(down)

    def after_local(self, down: State, up: State, client: State, task: Task) -> State:
        return _completed(up)


def _routed_loss(method: DynamicRouting, task: Task, state: State, batch: Batch) -> Loss:
    return method.routed(task).loss(_completed(state), batch)


def _completed(state: State) -> State:
    """Fill the second set with the shared tensors of layers that are not routed."""
    shared = {k.removeprefix("shared."): v for k, v in state.items() if k.startswith("shared.")}
    return {f"local.{k}": v for k, v in shared.items()} | state
