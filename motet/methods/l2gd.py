"""L2GD: personal models that take local steps, and at random times a step towards their mean.

Hanzely and Richtarik, "Federated Learning of a Mixture of Global and Local Models", 2020.
https://arxiv.org/abs/2002.05516
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from motet.errors import CapabilityError, RequestError
from motet.fitting import fit
from motet.keys import Key
from motet.method import Card, ClientData, Method, RoundInfo
from motet.optim import Optimizer, Sgd
from motet.plans import Plan
from motet.reduce import Mean, Reduce
from motet.task import Task
from motet.tree import State, tree_map

LONGEST = 4  # local phases are cut at this many times their expected length


class Call(NamedTuple):
    """What the server says: the mean, how far to move towards it, and how many steps follow."""

    mean: State
    pull: Tensor
    steps: Tensor


@dataclass(frozen=True, kw_only=True)
class L2GD(Method[State, State, Call, State]):
    """Minimises the mean of f_i(x_i) + lam/2 ||x_i - mean||^2 by loopless gradient descent.

    Attributes:
        optimizer: Local steps: plain SGD.
        lam: Strength of the mixture. 0 is Local.
        p: Probability that an iteration is a step towards the mean; a round is one run of local
            steps (1/p - 1 of them on average) and the mixing steps that follow.
    """

    optimizer: Optimizer = Sgd(lr=0.1)
    lam: float = 1.0
    p: float = 0.1
    reduce: Reduce = Mean(weights="uniform")

    name: ClassVar[str] = "l2gd"
    card: ClassVar[Card] = Card(
        title="L2GD",
        paper="Hanzely and Richtarik",
        year=2020,
        link="https://arxiv.org/abs/2002.05516",
        idea="Local steps, and at random times a step towards the mean of all models.",
        shared="the mean of the personal models",
        private="a model",
        down="1",
        up="1",
        new_client="starts from the mean and takes local steps",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.p < 1:
            raise RequestError(f"L2GD(p=) is a probability inside (0, 1); got {self.p}.")
        if not isinstance(self.optimizer, Sgd) or self.optimizer.momentum:
            raise CapabilityError(
                "L2GD is gradient descent on one objective, so its local steps are plain SGD; "
                f"got {self.optimizer}."
            )
        if not 0 <= self.mixing <= 1:
            raise RequestError(
                f"lr (1 - p) lam / p = {self.mixing:g} is the step towards the mean, so it lies in "
                "[0, 1]; take a smaller lam or lr, or a larger p."
            )
        if self.epochs is not None or self.steps is not None:
            raise RequestError("L2GD draws its number of local steps; set p= instead.")

    @property
    def mixing(self) -> float:
        """How far one mixing step goes towards the mean: alpha lam / (N p) in the paper."""
        assert isinstance(self.optimizer, Sgd)
        return self.optimizer.lr * (1 - self.p) * self.lam / self.p

    def plans(self) -> dict[str, Plan]:
        return {"train": Plan(steps=LONGEST * round(1 / self.p), batch_size=self.batch_size)}

    def check(self, task: Task, clients: Sequence[str]) -> list[str]:
        neutral = "l2gd: lam=0 never mixes, so the personal models are Local's."
        return [neutral] if self.lam == 0 else []

    def init_server(self, task: Task, initial: State, clients: Sequence[str], key: Key) -> State:
        return initial

    def init_client(self, task: Task, initial: State, key: Key) -> State:
        return initial

    def broadcast(self, server: State, info: RoundInfo) -> Call:
        coin = info.key.fold("coin").numpy()
        local, mixings = int(coin.geometric(self.p)) - 1, int(coin.geometric(1 - self.p))
        # The mean does not change while all move towards it, so repeated mixing is one longer step.
        pull = 1 - (1 - self.mixing) ** mixings if info.number else 0.0
        return Call(server, torch.tensor(pull), torch.tensor(max(local, 1)))

    def client_update(
        self, down: Call, client: State, data: ClientData, task: Task
    ) -> tuple[State, State]:
        batches = data["train"]
        wanted = torch.arange(batches.weight.shape[0])[:, None] < down.steps
        own = fit(
            task,
            mixed(client, down),
            batches._replace(weight=batches.weight * wanted),
            self.optimizer,
        )
        return own, own

    def gradient_evaluations(self, down: Call, data: ClientData) -> float:
        return float(data["train"].weight[: int(down.steps)].sum())

    def server_update(self, server: State, combined: State, info: RoundInfo, task: Task) -> State:
        return combined

    def notes(self, server: State, combined: Any, info: RoundInfo) -> dict[str, Any]:
        call = self.broadcast(server, info)
        return {"pull": float(call.pull), "local_steps": int(call.steps)}

    def adapt(self, down: Call, client: State, data: ClientData, task: Task) -> State:
        return fit(task, down.mean, data["adapt"], self.optimizer)

    def personalize(self, down: Call, client: State, data: ClientData, task: Task) -> State:
        return client

    def after_broadcast(self, down: Call, client: State, task: Task) -> State:
        return client

    def after_local(self, down: Call, up: State, client: State, task: Task) -> State:
        return client


def mixed(client: State, down: Call) -> State:
    """Move towards the mean; counters stay the client's own."""

    def move(own: Tensor, mean: Tensor) -> Tensor:
        return own + down.pull * (mean - own) if own.is_floating_point() else own

    return tree_map(move, client, down.mean)
