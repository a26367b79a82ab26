"""Average one part of the model, keep the other: what FedAvg, FedPer and Local have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from motet._core import studies
from motet._core.keys import Key
from motet._core.selectors import NORM_LAYERS
from motet._core.studies import MOST_POINTS, FinishedRun, Study
from motet._core.tree import State, drop, pick, squared_distance
from motet._training.fitting import fit
from motet.errors import RequestError
from motet.method import ClientData, Method, RoundInfo
from motet.methods._bases.server_step import first_moments, server_step, shared_part
from motet.optim import Optimizer
from motet.task import Task

Norm = Literal["average", "local_stats", "local_layers"]
NORM_POLICIES = ("average", "local_stats", "local_layers")


@dataclass(frozen=True, kw_only=True)
class PartialSharing(Method[State, State, State, State]):
    """A model in two parts: the shared part is averaged, the private part never leaves the client.

    Attributes:
        norm: What happens to normalisation layers of the shared part. "average" treats them as any
            other tensor (running statistics averaged, counters keep the largest); "local_stats"
            keeps running statistics at the client; "local_layers" keeps the whole layers there.
        server_optimizer: Steps on the averaged change of the cohort, as if it were a gradient. None
            takes the average itself, which is SGD with a step of 1.

    Example:
        >>> import motet
        >>> world = motet.testing.ragged()
        >>> sorted(motet.FedPer().private_names(world.task))
        ['head.bias', 'head.weight']
    """

    norm: Norm = "average"
    server_optimizer: Optimizer | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.norm not in NORM_POLICIES:
            raise RequestError(f"norm= is one of {', '.join(NORM_POLICIES)}; got {self.norm!r}.")

    @abstractmethod
    def personal_names(self, task: Task) -> frozenset[str]:
        """Return the names of the tensors that are private by the method's own rule."""

    def private_names(self, task: Task) -> frozenset[str]:
        """Return the names of all tensors that a client keeps, with those that `norm` adds."""
        return self.personal_names(task) | norm_names(task, self.norm)

    def init_server(self, task: Task, initial: State, clients: Sequence[str], key: Key) -> State:
        shared = drop(initial, self.private_names(task))
        return shared | first_moments(self.server_optimizer, shared, task)

    def init_client(self, task: Task, initial: State, key: Key) -> State:
        return pick(initial, self.private_names(task))

    def broadcast(self, server: State, info: RoundInfo) -> State:
        return shared_part(server)

    def client_update(
        self, down: State, client: State, data: ClientData, task: Task
    ) -> tuple[State, State]:
        trained = fit(task, down | client, data["train"], self.optimizer)
        return pick(trained, down), pick(trained, client)

    def server_update(self, server: State, combined: State, info: RoundInfo, task: Task) -> State:
        return server_step(self.server_optimizer, server, combined, task)

    def adapt(self, down: State, client: State, data: ClientData, task: Task) -> State:
        adapted = fit(task, down | client, data["adapt"], self.optimizer, train=client.keys())
        return pick(adapted, client)

    def personalize(self, down: State, client: State, data: ClientData, task: Task) -> State:
        return down | client

    def after_broadcast(self, down: State, client: State, task: Task) -> State:
        return down | client

    def after_local(self, down: State, up: State, client: State, task: Task) -> State:
        return up | client

    def studies(self, run: FinishedRun) -> list[Study]:
        names = self.private_names(run.setting.task) & run.setting.task.parameters
        moved = {c: moved_by(run, c, names) for c in studies.trained(run, MOST_POINTS)}
        if not any(moved.values()):
            return []
        return [
            studies.per_client(
                "How far each client's personal part has moved",
                "Distance of the personal parameters from where they started. 0 is a client whose "
                "training never touched them.",
                quantity="||v - v_0||",
                values=moved,
                total=len(run.setting.store),
            )
        ]


def moved_by(run: FinishedRun, client: str, names: frozenset[str]) -> float:
    """Measure how far what a client keeps is from what it was given at first contact."""
    start, now = run.setting.fresh_client(client), run.setting.client(client)
    return float(squared_distance(pick(now, names), pick(start, names)).sqrt())


def norm_names(task: Task, policy: Norm) -> frozenset[str]:
    """Name the tensors that a policy for normalisation layers keeps at the client."""
    if policy == "average":
        return frozenset()
    layers = [p for p, m in task.skeleton.named_modules() if isinstance(m, NORM_LAYERS)]
    under = {name for name in task.names if name.rpartition(".")[0] in layers}
    return frozenset(under if policy == "local_layers" else under & task.buffers)


def split_warnings(
    method: PartialSharing, task: Task, *, fix: str = "name modules in personal="
) -> list[str]:
    """Warn where a split of the model makes this another method."""
    private = method.private_names(task) & task.parameters
    if not private:
        return [f"{method.name} with an empty personal part is fedavg; {fix}."]
    if private == task.parameters:
        return [f"{method.name} keeps every parameter at the client, which is local; share some."]
    return []
