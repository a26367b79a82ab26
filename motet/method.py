"""The one interface every algorithm implements: pure functions over trees of named tensors, written
for ONE client.

Only `Down` and `Up` ever cross a network; `Client` never does. The functions know nothing of loops
over clients, devices or networks; randomness and data are arguments.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Generic, NamedTuple, TypeAlias, TypeVar

from torch import Tensor

from motet._core import studies, tree
from motet._core.aggregation.mean import Mean, Reduce
from motet._core.keys import Key
from motet._core.notebook_html import box, details, line, table, title
from motet._core.per_client import PerClient
from motet._core.points import MEANING, Point
from motet._core.schedules import Constant, Schedule
from motet._core.studies import FinishedRun, Study
from motet._core.tree import State
from motet._training.batching import Batches, Plan
from motet._training.fitting import fit, mean_gradient, mean_loss
from motet.data._federation import Federation
from motet.errors import CapabilityError
from motet.optim import Optimizer, Sgd
from motet.task import Task

__all__ = [
    "AnyMethod",
    "Batches",
    "Card",
    "ClientData",
    "FinishedRun",
    "Method",
    "PerClient",
    "Plan",
    "RoundInfo",
    "State",
    "Study",
    "fit",
    "mean_gradient",
    "mean_loss",
    "studies",
    "tree",
]

Server = TypeVar("Server")
Client = TypeVar("Client")
Down = TypeVar("Down")
Up = TypeVar("Up")

ClientData: TypeAlias = Mapping[str, Batches]  # phase name -> batches of that phase


class RoundInfo(NamedTuple):
    """What the server knows about the round it is in.

    Attributes:
        number: Number of the round, from 0.
        total: Number of planned rounds.
        cohort: Clients that were drawn.
        clients: All registered clients, in the order of their ids.
        key: The server's own randomness.
        serving: Whether the broadcast makes predictors, so that no client trains on it.

    Example:
        >>> import motet
        >>> key = motet.Key(0)
        >>> info = RoundInfo(number=0, total=10, cohort=("b",), clients=("a", "b"), key=key)
        >>> f"{len(info.cohort)} of {len(info.clients)} clients"
        '1 of 2 clients'
    """

    number: int
    total: int
    cohort: tuple[str, ...]
    clients: Sequence[str]
    key: Key  # the server's own randomness
    serving: bool = False


@dataclass(frozen=True)
class Card:
    """What a reader wants to know about a method before using it.

    Attributes:
        title: Name of the method as its authors write it.
        paper: Authors.
        year: Year of publication.
        link: Address of the paper.
        idea: The method in one or two sentences.
        shared: What is common to all clients.
        private: What a client keeps.
        down: Models sent to a client per round.
        up: Models sent by a client per round.
        new_client: What a client that never trained gets.

    Example:
        >>> import motet
        >>> motet.FedPer.card.year, motet.FedPer.card.private
        (2019, 'the last layers')
    """

    title: str
    paper: str
    year: int
    link: str
    idea: str
    shared: str
    private: str
    down: str
    up: str
    new_client: str


@dataclass(frozen=True, kw_only=True)
class Method(ABC, Generic[Server, Client, Down, Up]):
    """A personalized federated algorithm: hyperparameters, and pure functions.

    Attributes:
        optimizer: Local training. Moments start at 0 in every phase.
        epochs: Local epochs per round; 1 if neither `epochs` nor `steps` is given.
        steps: Local steps per round instead of epochs.
        batch_size: Examples per step; None is the full batch.
        schedule: Factor on the learning rate, by round.
        adapt_epochs: Passes over its own data that a client may make when it is served outside
            training.
        adapt_steps: Gradient steps when a client is served, instead of `adapt_epochs`.
        reduce: How uploads are combined.

    Shared arguments:
        task: The network and its loss.
        initial: The initial model, the same for all clients.
        key: Randomness of the server or of one client.
        server: The server's state.
        info: The round: its number, cohort and clients.
        down: What the client was sent.
        up: What the client sent.
        client: What the client keeps between rounds.
        clients: Ids of all clients, sorted.
        data: The client's batches, by phase.
        combined: The uploads of the round, as `reduce` combined them.
        personal: A client's predictor, as `personalize` made it.
        x: Inputs, one row per example.
        federation: The data of all clients.
        run: A finished run.

    Example:
        >>> import motet
        >>> method = motet.FedProx(mu=0.1, epochs=2)
        >>> isinstance(method, motet.Method), method.name, method.epochs
        (True, 'fedprox', 2)
        >>> method.card.private
        'nothing'
    """

    optimizer: Optimizer = Sgd(lr=0.1)
    epochs: int | None = None
    steps: int | None = None
    batch_size: int | None = 32
    schedule: Schedule = Constant()
    adapt_epochs: int = 5
    adapt_steps: int | None = None
    reduce: Reduce = Mean()

    name: ClassVar[str]
    card: ClassVar[Card]
    stateful: ClassVar[bool] = True  # clients keep something between rounds
    vectorizable: ClassVar[bool] = True  # no Python branch on a tensor's value
    one_network: ClassVar[bool] = (
        True  # the personalized predictor is one state of the task's network
    )
    reported: ClassVar[Point] = "after_adapt"  # the point whose scores the authors report
    arrival_phases: ClassVar[tuple[str, ...]] = ()  # phases of training that `arrive` walks
    gradients: ClassVar[Mapping[str, float]] = {}  # gradient evaluations per step, where not 1
    forward_only: ClassVar[tuple[str, ...]] = ()  # phases of serving that take no gradients
    # Phases of serving in which every client takes gradient steps: the budget of serving.
    tuned_phases: ClassVar[tuple[str, ...]] = ()
    weighed_phase: ClassVar[str | None] = (
        None  # the phase whose examples weigh an upload; all training examples if None
    )

    def __post_init__(self) -> None:
        self.plans()  # refuses steps= together with epochs=
        self.adapt_plans()

    def plans(self) -> dict[str, Plan]:
        """Return the phases of local training, by name."""
        return {
            "train": Plan(epochs=self.epochs, steps=self.steps, batch_size=self.batch_size),
        }

    def adapt_plans(self) -> dict[str, Plan]:
        """Return the phases of serving a client, which `adapt` and `personalize` get as data."""
        return {
            "adapt": Plan(**self._adapt_length(), batch_size=self.batch_size, stream="adapt"),
        }

    def _adapt_length(self) -> dict[str, Any]:
        if self.adapt_steps is not None:
            return {"steps": self.adapt_steps}
        return {"epochs": self.adapt_epochs}

    def prepare(self, federation: Federation) -> Federation:
        """Return the data to train on, if they are not each client's own alone.

        Validation and test data must stay as they are.
        """
        return federation

    def trains_as(self) -> AnyMethod:
        """Return the method whose rounds are the same to the last bit: one training serves both."""
        return self

    def check(self, task: Task, clients: Sequence[str]) -> list[str]:
        """Check the settings before round 1.

        Returns:
            Warnings about settings that have no effect.

        Raises:
            CapabilityError: The method cannot work with this network or these clients.
        """
        return []

    @abstractmethod
    def init_server(self, task: Task, initial: State, clients: Sequence[str], key: Key) -> Server:
        """Make the server's state from the initial model."""

    @abstractmethod
    def init_client(self, task: Task, initial: State, key: Key) -> Client:
        """Make what a client keeps, when it takes part for the first time."""

    @abstractmethod
    def broadcast(self, server: Server, info: RoundInfo) -> Down | PerClient:
        """Return what clients are sent: the same for all, or a `PerClient`."""

    @abstractmethod
    def client_update(
        self, down: Down, client: Client, data: ClientData, task: Task
    ) -> tuple[Up, Client]:
        """Do one client's local work.

        Returns:
            What is sent to the server, and what the client keeps.
        """

    def gradient_evaluations(self, down: Down, data: ClientData) -> float:
        """Return the number of single-example gradients in one client's local work."""
        weights = {name: float(phase.weight.sum()) for name, phase in data.items()}
        return sum(self.gradients.get(name, 1.0) * weight for name, weight in weights.items())

    @abstractmethod
    def server_update(self, server: Server, combined: Any, info: RoundInfo, task: Task) -> Server:
        """Return the server's state after a round."""

    def notes(self, server: Server, combined: Any, info: RoundInfo) -> dict[str, Any]:
        """Return facts about a round to keep, as JSON values: affinities, clusters, weights, ..."""
        return {}

    def studies(self, run: FinishedRun) -> list[Study]:
        """Return studies of a finished run for its report: what the method did for which client."""
        return []

    def adapt(self, down: Down, client: Client, data: ClientData, task: Task) -> Client:
        """Return what a client keeps, fitted to its data: for a client that never trained."""
        return client

    @abstractmethod
    def personalize(self, down: Down, client: Client, data: ClientData, task: Task) -> Any:
        """Return the client's predictor, made from what it was sent and what it keeps."""

    def arrive(self, down: Down, client: Client, data: ClientData, task: Task) -> Client:
        """Return what a client keeps after a broadcast arrives, before it trains.

        For a predictor `after_broadcast` the data are those of `arrival_phases` that the next
        round's training would use. A method that does something here does the same at the start of
        its `client_update`.
        """
        return client

    def after_broadcast(self, down: Down, client: Client, task: Task) -> Any:
        """Return the predictor right after a broadcast, before any adaptation."""
        raise CapabilityError(
            f"{self.name} has no predictor before adaptation; ask for after_adapt."
        )

    def after_local(self, down: Down, up: Up, client: Client, task: Task) -> Any:
        """Return the predictor after local training, before the server combines uploads."""
        raise CapabilityError(
            f"{self.name} has no predictor after local training; ask for after_adapt."
        )

    def predict(self, personal: Any, x: Tensor, task: Task) -> Tensor:
        """Return class probabilities (or values) from a predictor that `personalize` made."""
        return task.predict(personal, x)

    def _repr_html_(self) -> str:
        """Show the card, and the hyperparameters as they are set."""
        card = self.card
        facts = [
            ("paper", f"{card.paper} {card.year or ''} {card.link}"),
            ("shared", card.shared),
            ("private", card.private),
            ("down / up", f"{card.down} / {card.up} models per round and client"),
            ("a new client", card.new_client),
            ("scored", f"{MEANING[self.reported]} ({self.reported})"),
        ]
        settings = table([], [(f.name, repr(getattr(self, f.name))) for f in fields(self)])
        about = title(card.title, self.name)
        return box(about, line(card.idea), table([], facts), details("Hyperparameters", settings))


AnyMethod: TypeAlias = Method[Any, Any, Any, Any]
