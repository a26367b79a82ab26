"""Flow: route every instance between the global and a local set of parameters.

Panchal et al., "Flow: Per-instance Personalized Federated Learning", NeurIPS 2023.
https://arxiv.org/abs/2211.15281 (and the poster by Panchal and Guan, CrossFL 2022)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import ClassVar, Literal, NamedTuple

from torch import Tensor

from motet.errors import RequestError
from motet.fitting import fit
from motet.keys import Key
from motet.method import Card, ClientData, Method, RoundInfo
from motet.optim import Optimizer, Sgd
from motet.plans import Plan
from motet.routing import Recurrence, Routing, policy_names, routed_state, routed_task
from motet.task import Batch, Loss, Task
from motet.tree import State, drop, pick, prefixed, slot

EPS = 1e-6  # inside the logarithm of the regulariser, as released
SLOT = "policy"


class Routed(NamedTuple):
    """A client's predictor: both models, and the policy that chooses between them."""

    shared: State
    local: State
    policy: State


@dataclass(frozen=True, kw_only=True)
class Flow(Method[State, State, State, State]):
    """A policy decides per instance (per time step in recurrent layers) between global and local
    parameters.

    Attributes:
        layers: Modules that are routed; None routes every recurrent layer if there are any, else
            every block.
        hidden: Widths of the policy's hidden layers.
        local_epochs: Epochs that derive the local model w_l from w_g, on the first half of the
            data.
        epochs: Epochs over the second half, on which the policy and w_g are trained.
        adapt_epochs: Epochs that train the policy when a client is served.
        lam: Weight of the regulariser, the paper's lambda; large routes everything one way.
        favour: Which route the regulariser pushes towards.
        temperature: Of the routing softmax, the poster's tau. Inference routes hard.
        recurrence: "poster" feeds both cells the mixed state; "release" keeps the local state
            unmixed.
        stateful: No: a client keeps nothing between rounds.
    """

    optimizer: Optimizer = Sgd(lr=0.05, momentum=0.9)
    layers: tuple[str, ...] | None = None
    hidden: tuple[int, ...] = (64, 32)
    local_epochs: int = 1
    lam: float = 1e-3
    favour: Literal["global", "local"] = "global"
    temperature: float = 1.0
    recurrence: Recurrence = "poster"

    name: ClassVar[str] = "flow"
    stateful: ClassVar[bool] = False
    one_network: ClassVar[bool] = False
    gradients: ClassVar[Mapping[str, float]] = MappingProxyType(
        {"shared": 2.0}
    )  # one for the policy, one for w_g
    card: ClassVar[Card] = Card(
        title="Flow",
        paper="Panchal et al., NeurIPS",
        year=2023,
        link="https://arxiv.org/abs/2211.15281",
        idea="Route every instance between global and local parameters.",
        shared="the model and the routing policy",
        private="a local model, made anew whenever it is needed",
        down="1 + policy",
        up="1 + policy",
        new_client="derives a local model, tunes the policy, routes",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.temperature <= 0:
            raise RequestError(f"temperature must be above 0; got {self.temperature}.")
        if self.favour not in ("global", "local"):
            raise RequestError(f'favour= is "global" or "local"; got {self.favour!r}.')

    @property
    def routing(self) -> Routing:
        """How the network is routed."""
        return Routing(self.layers, self.hidden, self.temperature, self.recurrence)

    def plans(self) -> dict[str, Plan]:
        return {
            "local": self._half(0, epochs=self.local_epochs),
            "shared": self._half(1, epochs=self.epochs, steps=self.steps),
        }

    def adapt_plans(self) -> dict[str, Plan]:
        return {
            "local": self._half(0, epochs=self.local_epochs),
            "policy": self._half(1, epochs=self.adapt_epochs),
        }

    def _half(self, which: int, *, epochs: int | None, steps: int | None = None) -> Plan:
        return Plan(epochs=epochs, steps=steps, batch_size=self.batch_size, part=(which, 2))

    def init_server(self, task: Task, initial: State, clients: Sequence[str], key: Key) -> State:
        routed = routed_task(task, self.routing, hard=False)
        policy = pick(routed.init(key.fold("policy")), policy_names(task, self.routing))
        return initial | prefixed(SLOT, policy)

    def init_client(self, task: Task, initial: State, key: Key) -> State:
        for hard in (False, True):  # built here, outside vmap, where drawing weights is allowed
            routed_task(task, self.routing, hard=hard)
        return {}

    def broadcast(self, server: State, info: RoundInfo) -> State:
        return server

    def client_update(
        self, down: State, client: State, data: ClientData, task: Task
    ) -> tuple[State, State]:
        local = self._derive(down, data, task)
        loss = partial(_both_losses, self, task)
        return fit(task, down, data["shared"], self.optimizer, loss=loss, given=(local,)), client

    def server_update(self, server: State, combined: State, info: RoundInfo, task: Task) -> State:
        return combined

    def personalize(self, down: State, client: State, data: ClientData, task: Task) -> Routed:
        local = self._derive(down, data, task)
        policy = prefixed(SLOT, slot(SLOT, down))
        loss = partial(_policy_loss, self, task)
        tuned = fit(
            task, down, data["policy"], self.optimizer, loss=loss, train=policy, given=(local,)
        )
        return Routed(drop(down, policy), local, slot(SLOT, tuned))

    def predict(self, personal: Routed, x: Tensor, task: Task) -> Tensor:
        routed = routed_task(task, self.routing, hard=True)
        outputs, _ = routed.call(routed_state(task, self.routing, *personal), x)
        return task.criterion.probabilities(outputs)

    def _derive(self, down: State, data: ClientData, task: Task) -> State:
        """Make w_l from w_g by local epochs; it is used and thrown away."""
        shared = drop(down, prefixed(SLOT, slot(SLOT, down)))
        return fit(task, shared, data["local"], self.optimizer)


def _both_losses(method: Flow, task: Task, state: State, batch: Batch, local: State) -> Loss:
    """Train w_g on its own loss and the policy on the routed one.

    The paper alternates a policy step and a step on w_g, batch by batch. Neither step's gradient
    depends on the other's result (w_g is frozen for the policy, w_g's loss has no policy), so one
    joint step is the same.
    """
    shared = drop(state, prefixed(SLOT, slot(SLOT, state)))
    frozen = {k: v.detach() for k, v in shared.items()} | prefixed(SLOT, slot(SLOT, state))
    return task.loss(shared, batch) + _policy_loss(method, task, frozen, batch, local).value


def _policy_loss(method: Flow, task: Task, state: State, batch: Batch, local: State) -> Loss:
    """Score the softly routed network in evaluation mode, plus the regulariser."""
    routed = routed_task(task, method.routing, hard=False)
    shared = drop(state, prefixed(SLOT, slot(SLOT, state)))
    parts = routed_state(task, method.routing, shared, local, slot(SLOT, state))
    outputs, to_shared = routed.call(parts, batch.x)
    favoured = to_shared if method.favour == "global" else 1 - to_shared
    penalty = -(favoured.square() + EPS).log().flatten(1).mean(1)  # [batch]
    losses = task.criterion.example_loss(outputs, batch.y) + method.lam * penalty
    return Loss((losses * batch.weight).sum() / batch.weight.sum().clamp(min=1), {})
