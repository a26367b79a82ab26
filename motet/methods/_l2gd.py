"""L2GD: personal models that take local steps, and at random times a step towards their mean.

Hanzely and Richtarik, "Federated Learning of a Mixture of Global and Local Models", 2020.
https://arxiv.org/abs/2002.05516
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from motet._core.aggregation.mean import Mean, Reduce
from motet._core.keys import Key
from motet._core.tree import State, drop, tree_map
from motet._training.batching import Plan
from motet._training.fitting import fit
from motet.errors import CapabilityError, RequestError
from motet.method import Card, ClientData, Method, RoundInfo
from motet.optim import Optimizer, Sgd
from motet.task import Task

LONGEST = 8  # a run of local steps is split over rounds at this many times its expected length
# Beside the mean, the server keeps whether the last round's run of local steps goes on in the next
# round, and whether that round itself went on with one.
UNFINISHED, CONTINUED = "coin/unfinished", "coin/continued"


class Turn(NamedTuple):
    """The coin flips of one round: heads, which are mixing steps, and then tails, local steps."""

    mixings: int
    steps: int
    unfinished: bool  # the run of tails goes on in the next round


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
        p: Probability that an iteration is a step towards the mean. A round is one run of mixing
            steps (1/(1-p) of them on average, none in the first round) and the run of local steps
            that follows (1/p on average), so there are (1-p)/p local steps per mixing step.

    Example:
        >>> import motet
        >>> motet.L2GD(lam=1.0).name
        'l2gd'
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
        return {"train": Plan(steps=self._longest, batch_size=self.batch_size)}

    def check(self, task: Task, clients: Sequence[str]) -> list[str]:
        neutral = "l2gd: lam=0 never mixes, so the personal models are Local's."
        return [neutral] if self.lam == 0 else []

    def init_server(self, task: Task, initial: State, clients: Sequence[str], key: Key) -> State:
        no = torch.zeros((), dtype=torch.bool)
        return initial | {UNFINISHED: no, CONTINUED: no.clone()}

    def init_client(self, task: Task, initial: State, key: Key) -> State:
        return initial

    @property
    def _longest(self) -> int:
        return math.ceil(LONGEST / self.p)

    def turn(self, info: RoundInfo, *, continues: bool) -> Turn:
        """Draw the coin flips of a round.

        Args:
            info: The round.
            continues: Whether the local steps of the last round continue.
        """
        coin = info.key.fold("coin").numpy()
        # Between two rounds the coin shows heads after tails, which is when the paper communicates;
        # so both runs have at least one flip. Heads before the first tails change nothing.
        tails, heads = int(coin.geometric(self.p)), int(coin.geometric(1 - self.p))
        mixings = 0 if continues or info.number == 0 else heads
        # Deviates: a run of more than 8/p local steps is split over rounds. The coin has no memory,
        # so the process is the paper's, with one message more.
        return Turn(mixings, min(tails, self._longest), unfinished=tails > self._longest)

    def pull(self, mixings: int) -> float:
        """Return how far a number of mixing steps moves a model to the mean.

        Args:
            mixings: Number of mixing steps in a row.
        """
        return 1 - (1 - self.mixing) ** mixings

    def broadcast(self, server: State, info: RoundInfo) -> Call:
        turn = self.turn(info, continues=bool(server[UNFINISHED]))
        pull = torch.tensor(self.pull(turn.mixings), dtype=torch.float64)
        return Call(drop(server, (UNFINISHED, CONTINUED)), pull, torch.tensor(turn.steps))

    def client_update(
        self, down: Call, client: State, data: ClientData, task: Task
    ) -> tuple[State, State]:
        batches = data["train"]
        wanted = torch.arange(batches.weight.shape[0])[:, None] < down.steps
        # Deviates: Gradients are taken on batches.
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
        continued = server[UNFINISHED]
        turn = self.turn(info, continues=bool(continued))
        # Deviates: Absent clients keep their models, and the mean is the cohort's.
        return combined | {UNFINISHED: torch.tensor(turn.unfinished), CONTINUED: continued}

    def notes(self, server: State, combined: Any, info: RoundInfo) -> dict[str, Any]:
        turn = self.turn(info, continues=bool(server[CONTINUED]))
        return {
            "pull": self.pull(turn.mixings),
            "mixing_steps": turn.mixings,
            "local_steps": turn.steps,
        }

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
        return own + down.pull.to(own.dtype) * (mean - own) if own.is_floating_point() else own

    return tree_map(move, client, down.mean)
