"""What Flow and its ablation have in common: a predictor that routes between two models."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from motet._core import studies
from motet._core.keys import Key
from motet._core.studies import FinishedRun, Study
from motet._core.tree import State
from motet.method import Method, RoundInfo
from motet.methods._flow.routing.network import Routes, routed_task
from motet.methods._flow.routing.places import places
from motet.methods._flow.routing.rules import Recurrence, Routing
from motet.optim import Optimizer, Sgd
from motet.task import Task

EPOCHS = 3  # of the release
MOST_ASKED = 20  # clients whose routes are counted: each must be adapted first


@dataclass(frozen=True, kw_only=True)
class RoutedMethod(Method[State, State, State, State]):
    """Two sets of parameters and a policy; its predictor is a state of the routed network.

    Attributes:
        optimizer: Local training; the default is what the release uses for CIFAR-10, as are those
            of `epochs` and `batch_size`.
        epochs: Local epochs per round; 3 if neither `epochs` nor `steps` is given.
        layers: Modules that are routed, by dotted path; None routes every recurrent layer if there
            are any, else every block.
        hidden: Widths of the policy's hidden layers.
        temperature: Of the routing softmax, the poster's tau; small is nearly hard.
        recurrence: "poster" feeds both recurrent cells the mixed state; "release" keeps the local
            cell's state unmixed.
    """

    optimizer: Optimizer = Sgd(lr=0.05, momentum=0.9)
    batch_size: int | None = 20
    layers: tuple[str, ...] | None = None
    hidden: tuple[int, ...] = (64, 32)
    temperature: float = 1.0
    recurrence: Recurrence = "poster"

    stateful: ClassVar[bool] = False
    one_network: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.routing  # refuses what makes no sense

    @property
    def passes(self) -> int | None:
        """Local epochs per round, unless steps are counted."""
        return EPOCHS if self.epochs is None and self.steps is None else self.epochs

    @property
    @abstractmethod
    def routing(self) -> Routing:
        """How the network is routed."""

    def routed(self, task: Task, *, hard: bool = False) -> Task:
        """Return the task of the routed network: soft to train it, hard to use it.

        Args:
            task: The network and its loss.
            hard: Whether each instance takes one route, instead of a mix of both.
        """
        return routed_task(task, self.routing, hard=hard)

    def check(self, task: Task, clients: Sequence[str]) -> list[str]:
        places(task.skeleton, self.layers)  # refuses layers that are not there
        return []

    def init_client(self, task: Task, initial: State, key: Key) -> State:
        return {}

    def broadcast(self, server: State, info: RoundInfo) -> State:
        return server

    def server_update(self, server: State, combined: State, info: RoundInfo, task: Task) -> State:
        # Deviates: The server takes the mean.
        return combined

    def predict(self, personal: State, x: Tensor, task: Task) -> Tensor:
        outputs, _ = self.routed(task, hard=True).call(personal, x)
        return task.criterion.probabilities(outputs)

    def routes(self, personal: State, x: Tensor, task: Task) -> Routes:
        """Return the route of each instance by routed layer: 1 is shared, 0 is local.

        Args:
            personal: A client's predictor.
            x: Inputs, one row per example.
            task: The network and its loss.
        """
        routes: Routes = self.routed(task, hard=True).call(personal, x)[1]
        return routes

    def studies(self, run: FinishedRun) -> list[Study]:
        task, clients = run.setting.task, studies.trained(run, MOST_ASKED)
        some = self.routed(task).init(Key(0))  # any state names the layers
        answers = run.ask(self._local_routes, clients, "val") or run.ask(
            self._local_routes, clients
        )
        return [
            studies.shares(
                "Which way each client's instances go",
                "Mean over the client's own validation data (training data where there are none), "
                "and over time steps in recurrent layers.",
                quantity="share routed to the local model",
                parts=list(self.routes(some, task.example, task)),
                values={client: rows.mean(0) for client, rows in answers.items()},
                total=len(run.setting.store),
            )
        ]

    def _local_routes(self, personal: State, x: Tensor, task: Task) -> Tensor:
        routes = self.routes(personal, x, task)
        return torch.stack([1 - to_shared.mean(1) for to_shared in routes.values()], dim=1)
