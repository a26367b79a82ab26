"""What FedAlt and FedSim have in common: a personal part v, its objective, its final fine-tuning.

Pillutla et al., "Federated Learning with Partial Model Personalization", ICML 2022.
https://arxiv.org/abs/2204.03809
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from motet._core.keys import Key
from motet._core.selectors import Selector
from motet._core.tree import State, drop, pick, prefixed, slot, squared_distance, zeros_like
from motet._training.batching import Batches, Plan
from motet._training.fitting import Objective, fit
from motet.errors import CapabilityError, RequestError
from motet.method import ClientData
from motet.methods._bases.partial_sharing import PartialSharing, norm_names, split_warnings
from motet.optim import Optimizer
from motet.task import Batch, Loss, Task

START = "start"  # where a client keeps v_0, if v is pulled towards it


@dataclass(frozen=True, kw_only=True)
class PartialPersonalization(PartialSharing):
    """A shared part u and a personal part v_i, which start from one common model.

    Attributes:
        personal: The personal part v: modules by dotted path, a role, or blocks. Nothing is FedAvg,
            every module is Local.
        personal_optimizer: Trains v; `optimizer`, which trains u, if None.
        keep_personal: Whether a client keeps v between rounds. False is the paper's stateless
            variant: v starts afresh whenever the client is sampled, and becomes personal by the
            final fine-tuning alone.
        pull: The c of the penalty c ||v - v_0||^2 on v; 0 leaves v free.
        pull_to: v_0: the "initial" v, or "zero".
        final_epochs: Epochs of fine-tuning v, u frozen, at the learning rate of the optimizer
            itself, before a client is served; 0 serves v as training left it. `after_broadcast`
            reports before it, `after_adapt` after it.
    """

    # Deviates: Clients are averaged by their number of examples.
    personal: Selector = ("head",)
    personal_optimizer: Optimizer | None = None
    keep_personal: bool = True
    pull: float = 0.0
    pull_to: Literal["initial", "zero"] = "initial"
    final_epochs: int = 5

    tuned_phases: ClassVar[tuple[str, ...]] = ("final",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.pull >= 0:
            raise RequestError(f"pull= must be 0 or more; got {self.pull}.", option="pull")
        if self.pull_to not in ("initial", "zero"):
            raise RequestError(f'pull_to= is "initial" or "zero"; got {self.pull_to!r}.')

    def adapt_plans(self) -> dict[str, Plan]:
        final = Plan(epochs=self.final_epochs, batch_size=self.batch_size, stream="final")
        return super().adapt_plans() | {"final": final}

    def check(self, task: Task, clients: Sequence[str]) -> list[str]:
        return split_warnings(self, task)

    def personal_names(self, task: Task) -> frozenset[str]:
        # Deviates: Parts are named by exact module path, never by substring.
        return task.select(self.personal)

    def personal_part(self, task: Task) -> frozenset[str]:
        """Return the names of v, the part that is trained while u is frozen.

        Statistics of shared layers are not part of it, even where `norm` keeps them at the client.
        """
        # Deviates: Statistics of shared layers move in the phase on u.
        own_layers = norm_names(task, self.norm) if self.norm == "local_layers" else frozenset()
        return self.personal_names(task) | own_layers

    def init_client(self, task: Task, initial: State, key: Key) -> State:
        kept = super().init_client(task, initial, key)
        if not self.pull or self.pull_to == "zero":
            return kept
        start = pick(kept, self.personal_part(task))
        return kept | prefixed(START, task.trainable(start))

    def adapt(self, down: State, client: State, data: ClientData, task: Task) -> State:
        model = joined(down, client)
        model = self.fit_personal(model, client, data["adapt"], task, self.private_names(task))
        return self.kept(model, client, task)

    def personalize(self, down: State, client: State, data: ClientData, task: Task) -> State:
        model = joined(down, client)
        return self.fit_personal(model, client, data["final"], task, self.personal_part(task))

    def after_broadcast(self, down: State, client: State, task: Task) -> State:
        return joined(down, client)

    def after_local(self, down: State, up: State, client: State, task: Task) -> State:
        if not self.keep_personal:
            raise CapabilityError(
                f"{self.name}(keep_personal=False) forgets its personal part after local training, "
                "so there is no predictor then; ask for after_adapt."
            )
        return joined(up, client)

    def fit_personal(
        self, model: State, client: State, batches: Batches, task: Task, names: Collection[str]
    ) -> State:
        """Train the personal part and nothing else.

        Args:
            model: The whole model.
            client: What the client keeps.
            batches: Batches of one client.
            task: The network and its loss.
            names: Names of the personal part.
        """
        loss, given = self.objective(client, task)
        optimizer = self.personal_optimizer or self.optimizer
        # Deviates: Gradient clipping covers the parameters of the phase only.
        return fit(task, model, batches, optimizer, loss=loss, train=names, given=given)

    def objective(self, client: State, task: Task) -> tuple[Objective, tuple[Any, ...]]:
        """Return the loss on v, and the trees it needs."""
        if not self.pull:
            return task.loss, ()
        if self.pull_to == "initial":
            return PulledLoss(task, self.pull), (slot(START, client),)
        own = pick(client, self.personal_part(task))
        return PulledLoss(task, self.pull), (zeros_like(task.trainable(own)),)

    def kept(self, model: State, client: State, task: Task) -> State:
        """Return what stays at the client; without memory, the personal part starts anew.

        Args:
            model: The trained model.
            client: What the client kept so far.
            task: The network and its loss.
        """
        forgotten = frozenset() if self.keep_personal else self.personal_part(task)
        return client | drop(pick(model, client), forgotten)


def joined(shared: State, client: State) -> State:
    """Join u and v to one model; v_0 is not part of it."""
    return shared | {k: v for k, v in client.items() if not k.startswith(f"{START}/")}


@dataclass(frozen=True)
class PulledLoss:
    """The loss plus c ||v - v_0||^2: without the factor 1/2, as the authors' code has it."""

    task: Task
    strength: float

    def __call__(self, state: State, batch: Batch, start: State) -> Loss:
        penalty = self.strength * squared_distance(pick(state, start), start)
        return self.task.loss(state, batch) + penalty
