"""Flow: route every instance between the global and a local set of parameters.

Panchal et al., "Flow: Per-instance Personalized Federated Learning", NeurIPS 2023.
https://arxiv.org/abs/2211.15281 (and the poster by Panchal and Guan, CrossFL 2022)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import ClassVar

from motet._core.keys import Key
from motet._core.tree import State, drop, prefixed, slot
from motet._training.batching import Plan
from motet._training.fitting import fit
from motet._training.per_group import ByPart
from motet.method import Card, ClientData
from motet.methods._flow.routed import EPOCHS, RoutedMethod
from motet.methods._flow.routing.network import draw_policy, routed_state
from motet.methods._flow.routing.rules import Favour, Routing
from motet.optim import Optimizer
from motet.task import Batch, Loss, Task

POLICY = "policy"  # where the policy lives in what the server and a client exchange


@dataclass(frozen=True, kw_only=True)
class Flow(RoutedMethod):
    """A policy decides per instance (per time step in recurrent layers) between global and local
    parameters.

    Attributes:
        local_epochs: Epochs that derive the local model w_l from w_g; with 0 the two are equal, and
            so are all routes.
        epochs: Epochs on which the policy and w_g are trained, each on its own loss; 3 if neither
            `epochs` nor `steps` is given.
        adapt_epochs: Epochs that train the policy when a client is served.
        policy_optimizer: Trains the policy; `optimizer`, which trains w_l and w_g, if None.
        disjoint: Whether w_l is trained on one half of a client's data, and the policy and w_g on
            the other. False trains all three on all data, as the release does for CIFAR.
        lam: Weight of the regulariser, the paper's lambda; large routes everything one way.
        favour: The route that the regulariser pushes towards.
        temperature: Of the routing softmax in training. Inference routes hard.

    Example:
        >>> import motet
        >>> motet.Flow().name
        'flow'
    """

    local_epochs: int = EPOCHS
    policy_optimizer: Optimizer | None = None
    disjoint: bool = True
    lam: float = 1e-3
    favour: Favour = "global"

    name: ClassVar[str] = "flow"
    gradients: ClassVar[Mapping[str, float]] = MappingProxyType({"shared": 2.0})  # policy and w_g
    tuned_phases: ClassVar[tuple[str, ...]] = ("local", "policy")
    weighed_phase: ClassVar[str | None] = "shared"  # what w_g has seen, as in the release
    card: ClassVar[Card] = Card(
        title="Flow",
        paper="Panchal et al., NeurIPS",
        year=2023,
        link="https://arxiv.org/abs/2211.15281",
        idea="Route every instance between global and local parameters.",
        shared="the model and the routing policy",
        private="a local model, derived whenever it is needed",
        down="1 + policy",
        up="1 + policy",
        new_client="derives a local model, tunes the policy, routes",
    )

    @property
    def routing(self) -> Routing:
        return Routing(
            self.layers, self.hidden, self.temperature, self.recurrence, self.lam, self.favour
        )

    def plans(self) -> dict[str, Plan]:
        return {"local": self._local(), "shared": self._half(1, self.passes, self.steps)}

    def adapt_plans(self) -> dict[str, Plan]:
        policy = self._half(1, **self._adapt_length(), stream="adapt")
        return {"local": self._local(), "policy": policy}

    def _local(self) -> Plan:
        return self._half(0, self.local_epochs, stream="local")

    def _half(
        self,
        which: int,
        epochs: int | None = None,
        steps: int | None = None,
        stream: str = "train",
    ) -> Plan:
        part = (which, 2) if self.disjoint else None
        size = self.batch_size
        return Plan(epochs=epochs, steps=steps, batch_size=size, part=part, stream=stream)

    def check(self, task: Task, clients: Sequence[str]) -> list[str]:
        super().check(task, clients)
        if self.local_epochs == 0:
            return ["flow with local_epochs=0 predicts as w_g alone: the local model equals it."]
        return []

    def init_server(self, task: Task, initial: State, clients: Sequence[str], key: Key) -> State:
        policy = draw_policy(self.routed(task), key.fold(POLICY))
        return initial | prefixed(POLICY, policy)

    def client_update(
        self, down: State, client: State, data: ClientData, task: Task
    ) -> tuple[State, State]:
        local = self.derive_local(down, data, task)
        _, policy = split_policy(down)
        optimizer = ByPart(self._policy_optimizer, frozenset(policy), self.optimizer)
        loss = partial(_both_losses, self, task)
        return fit(task, down, data["shared"], optimizer, loss=loss, given=(local,)), client

    def personalize(self, down: State, client: State, data: ClientData, task: Task) -> State:
        local = self.derive_local(down, data, task)
        shared, policy = split_policy(down)
        optimizer, loss = self._policy_optimizer, partial(_policy_loss, self, task)
        # Deviates: Freezing is by argument, not by flag.
        tuned = fit(task, down, data["policy"], optimizer, loss=loss, train=policy, given=(local,))
        return routed_state(shared, local, slot(POLICY, tuned))

    def after_broadcast(self, down: State, client: State, task: Task) -> State:
        """Predict as w_g alone: the paper's generalised accuracy."""
        shared, _ = split_policy(down)
        return routed_state(shared, shared, slot(POLICY, down))

    @property
    def _policy_optimizer(self) -> Optimizer:
        return self.policy_optimizer or self.optimizer

    def derive_local(self, down: State, data: ClientData, task: Task) -> State:
        """Train the local model from the global one; it is used and discarded."""
        shared, _ = split_policy(down)
        return fit(task, shared, data["local"], self.optimizer)


def split_policy(state: State) -> tuple[State, State]:
    """Split what is exchanged into w_g and the policy, each under the names it has there."""
    policy = prefixed(POLICY, slot(POLICY, state))
    return drop(state, policy), policy


def _both_losses(method: Flow, task: Task, state: State, batch: Batch, local: State) -> Loss:
    """Train w_g on its own loss and the policy on the routed one.

    The paper alternates a policy step and a step on w_g, batch by batch. The policy's step reads
    w_g as it was before the batch, and w_g's step does not read the policy, so that taking both
    steps at once is the same.
    """
    shared, policy = split_policy(state)
    frozen = {k: v.detach() for k, v in shared.items()}
    to_route = _policy_loss(method, task, frozen | policy, batch, local)
    # Deviates: The policy and w_g step at once.
    return task.loss(shared, batch) + to_route.value


def _policy_loss(method: Flow, task: Task, state: State, batch: Batch, local: State) -> Loss:
    """Score the softly routed network, without dropout and with the statistics it received."""
    shared, _ = split_policy(state)
    parts = routed_state(shared, local, slot(POLICY, state))
    # Deviates: The policy's loss runs the network in evaluation mode.
    return Loss(method.routed(task).evaluation_loss(parts, batch), {})
