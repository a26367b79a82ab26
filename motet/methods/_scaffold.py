"""SCAFFOLD: control variates cancel the drift of local training.

Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", ICML 2020.
https://arxiv.org/abs/1910.06378
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from motet._core.aggregation.mean import Mean, Reduce
from motet._core.keys import Key
from motet._core.tree import State, drop, pick, prefixed, slot, subtract
from motet._training.batching import Batches, Plan
from motet._training.fitting import fit, mean_gradient
from motet._training.penalties import Tilted
from motet.errors import CapabilityError, RequestError
from motet.method import Card, ClientData, RoundInfo
from motet.methods._bases.server_step import server_step
from motet.methods._bases.stateful_fedavg import Remembering, model_in
from motet.optim import Optimizer, Sgd
from motet.task import Task

CONTROL = "control"  # c at the server, c_i at a client
CHANGE = "change"  # c_i+ - c_i, on its way up


@dataclass(frozen=True, kw_only=True)
class Scaffold(Remembering):
    """Local steps go along the gradient - c_i + c: the global direction replaces the local one.

    Attributes:
        option: How c_i is renewed: "II" reuses the gradients of the local steps, "I" makes a pass
            over the client's data for the gradient at w^t.
        server_optimizer: `Sgd(lr=...)` is the paper's global step size eta_g; None is 1.

    Example:
        >>> import motet
        >>> motet.Scaffold().name
        'scaffold'
    """

    reduce: Reduce = Mean(weights="uniform")
    option: Literal["I", "II"] = "II"

    name: ClassVar[str] = "scaffold"
    card: ClassVar[Card] = Card(
        title="SCAFFOLD",
        paper="Karimireddy et al., ICML",
        year=2020,
        link="https://arxiv.org/abs/1910.06378",
        idea="Correct local steps by the difference between the global and the local gradient.",
        shared="the whole model, and the mean control variate",
        private="the client's control variate",
        down="2",
        up="2",
        new_client="gets the global model",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.option not in ("I", "II"):
            raise RequestError(f'option= is "I" or "II"; got {self.option!r}.')
        if not _takes_plain_steps(self.optimizer):
            raise CapabilityError(
                "scaffold reads the mean gradient off the distance that local training went, which "
                f"needs plain steps: Sgd without momentum and clip. Got {self.optimizer}."
            )

    def plans(self) -> dict[str, Plan]:
        whole = Plan(epochs=1, batch_size=self.batch_size, stream="control")
        return super().plans() | ({"control": whole} if self.option == "I" else {})

    def check(self, task: Task, clients: Sequence[str]) -> list[str]:
        # Deviates: Clients may be weighed by examples.
        weighted = self.reduce.weights != "uniform"
        alarm = "scaffold's c is the mean of all c_i only if clients count equally; "
        advice = 'use reduce=Mean(weights="uniform").'
        return [*super().check(task, clients), *([alarm + advice] if weighted else [])]

    def init_server(self, task: Task, initial: State, clients: Sequence[str], key: Key) -> State:
        server = super().init_server(task, initial, clients, key)
        return server | self.zeros_in(CONTROL, initial, task)

    def init_client(self, task: Task, initial: State, key: Key) -> State:
        client = super().init_client(task, initial, key)
        return client | self.zeros_in(CONTROL, initial, task)

    def client_update(
        self, down: State, client: State, data: ClientData, task: Task
    ) -> tuple[State, State]:
        control, own = slot(CONTROL, down), slot(CONTROL, client)
        model = model_in(down | client, task)
        tilt = subtract(control, own)
        trained = fit(task, model, data["train"], self.optimizer, loss=Tilted(task), given=(tilt,))
        if self.option == "I":
            renewed = _at_the_start(model, data["control"], own, task)
        else:
            renewed = self._along_the_way(model, trained, data["train"], own, tilt)
        change = prefixed(CHANGE, subtract(renewed, own))
        kept = client | pick(trained, client) | prefixed(CONTROL, renewed)
        return pick(trained, down) | change, kept

    def server_update(self, server: State, combined: State, info: RoundInfo, task: Task) -> State:
        control, change = slot(CONTROL, server), slot(CHANGE, combined)
        share = len(info.cohort) / len(info.clients)
        renewed = prefixed(CONTROL, {k: c + share * change[k] for k, c in control.items()})
        models, mean = drop(server, renewed), model_in(combined, task)
        return server_step(self.server_optimizer, models, mean, task) | renewed

    def _along_the_way(
        self, model: State, trained: State, batches: Batches, own: State, tilt: State
    ) -> State:
        """Return c_i - c + (w - y) / (the sum of the step sizes): the steps' mean gradient."""
        assert isinstance(self.optimizer, Sgd)
        sizes = self.optimizer.lr * batches.rate * batches.active_steps()
        moved = sizes > 0  # without a step, or with steps of size 0, nothing is learnt about c_i
        scale = 1 / torch.where(moved, sizes, 1.0)

        def renew(name: str) -> Tensor:
            direction = (model[name] - trained[name]) * scale.to(model[name].dtype)
            return torch.where(moved, direction - tilt[name], own[name])

        return {name: renew(name) for name in own}


def _at_the_start(model: State, batches: Batches, own: State, task: Task) -> State:
    """Return the mean gradient at the received model; c_i itself where there are no examples."""
    # Deviates: Weight decay is part of the loss in option II and not in option I.
    slopes, seen = mean_gradient(task, model, batches), batches.weight.any()
    return {name: torch.where(seen, slopes.get(name, own[name]), own[name]) for name in own}


def _takes_plain_steps(optimizer: Optimizer) -> bool:
    return isinstance(optimizer, Sgd) and not optimizer.momentum and optimizer.clip is None
