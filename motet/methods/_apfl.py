"""APFL: the predictor is a mixture of a local and the global model, and the mixture is learnt.

Deng et al., "Adaptive Personalized Federated Learning", 2020. https://arxiv.org/abs/2003.13461
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import torch
from torch import Tensor

from motet._core import studies
from motet._core.aggregation.mean import Mean, Reduce
from motet._core.keys import Key
from motet._core.studies import MOST_POINTS, FinishedRun, Study
from motet._core.tree import State, float_type, interpolate, pick, prefixed, slot
from motet._training.batching import Batches
from motet._training.fitting import fit
from motet._training.per_group import ByPart, InUnitInterval
from motet.errors import RequestError
from motet.method import Card, ClientData
from motet.methods._bases.global_model import GlobalModel
from motet.optim import Sgd
from motet.task import Batch, Loss, Task

OWN, MIXTURE = "own", "alpha"


@dataclass(frozen=True, kw_only=True)
class APFL(GlobalModel):
    """Parameters are mixed, not outputs: v_bar = alpha v_i + (1 - alpha) w.

    Attributes:
        alpha: The mixture to start from. Fixed at 0 it is FedAvg, fixed at 1 Local.
        adaptive: Whether each client learns its own alpha.
        alpha_lr: Step size for alpha.

    Example:
        >>> import motet
        >>> motet.APFL(alpha=0.5).name
        'apfl'
    """

    alpha: float = 0.5
    adaptive: bool = True
    alpha_lr: float = 0.1
    reduce: Reduce = Mean(weights="uniform")

    name: ClassVar[str] = "apfl"
    gradients: ClassVar[Mapping[str, float]] = MappingProxyType({"train": 2.0, "adapt": 2.0})
    card: ClassVar[Card] = Card(
        title="APFL",
        paper="Deng et al.",
        year=2020,
        link="https://arxiv.org/abs/2003.13461",
        idea="Mix a local and the global model, and learn the mixture.",
        shared="a model",
        private="a second model and the mixture alpha",
        down="1",
        up="1",
        new_client="starts from the global model, trains its own and alpha",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.alpha <= 1:
            raise RequestError(f"APFL(alpha=) mixes, so it lies in [0, 1]; got {self.alpha}.")

    def check(self, task: Task, clients: Sequence[str]) -> list[str]:
        if self.adaptive or 0 < self.alpha < 1:
            return []
        other = "FedAvg" if self.alpha == 0 else "Local"
        return [f"apfl: alpha fixed at {self.alpha:g} mixes nothing, so this is {other}."]

    def init_client(self, task: Task, initial: State, key: Key) -> State:
        return prefixed(OWN, initial) | {
            MIXTURE: torch.tensor(self.alpha, dtype=float_type(initial))
        }

    def client_update(
        self, down: State, client: State, data: ClientData, task: Task
    ) -> tuple[State, State]:
        trained = self._fit_both(down, client, data["train"], task)
        return pick(trained, down), pick(trained, client)

    def studies(self, run: FinishedRun) -> list[Study]:
        if not self.adaptive:
            return []
        trained = studies.trained(run, MOST_POINTS)
        return [
            studies.per_client(
                "How much each client trusts its own model",
                f"alpha: 1 is the client's own model alone, 0 the global one; it starts at "
                f"{self.alpha:g}.",
                quantity="alpha",
                values={client: float(run.setting.client(client)[MIXTURE]) for client in trained},
                total=len(run.setting.store),
            )
        ]

    def adapt(self, down: State, client: State, data: ClientData, task: Task) -> State:
        start = prefixed(OWN, down) | {MIXTURE: client[MIXTURE]}
        return pick(self._fit_both(down, start, data["adapt"], task), client)

    def personalize(self, down: State, client: State, data: ClientData, task: Task) -> State:
        return mixture(task, down, client)

    def after_broadcast(self, down: State, client: State, task: Task) -> State:
        return mixture(task, down, client)

    def after_local(self, down: State, up: State, client: State, task: Task) -> State:
        return mixture(task, up, client)

    def _fit_both(self, shared: State, client: State, batches: Batches, task: Task) -> State:
        model = shared | client
        fixed = set() if self.adaptive else {MIXTURE}
        alpha = InUnitInterval(Sgd(lr=self.alpha_lr))
        optimizer = ByPart(alpha, frozenset({MIXTURE}), rest=self.optimizer)
        return fit(
            task, model, batches, optimizer, loss=MixtureLoss(task), train=model.keys() - fixed
        )


def mixture(task: Task, shared: State, client: State) -> State:
    """Mix parameters. Statistics are the client's own: they were gathered by the mixture."""
    own = slot(OWN, client)
    # Deviates: Parameters are mixed, not outputs.
    mixed = interpolate(task.trainable(shared), task.trainable(own), client[MIXTURE])
    # Deviates: Batch statistics of v_bar are kept with v_i.
    return own | mixed


@dataclass(frozen=True)
class MixtureLoss:
    """f(w) + f(alpha v + (1 - alpha) w), with w held fixed in the second term.

    Its gradients are the paper's three updates: of w from its own loss, of v and alpha at the
    mixture, all taken at the same point.
    """

    task: Task

    def __call__(self, state: State, batch: Batch) -> Loss:
        """Compute it; each model's statistics follow its own forward pass."""
        own = {k: v for k, v in state.items() if k.startswith(f"{OWN}/") or k == MIXTURE}
        shared = {k: v for k, v in state.items() if k not in own}
        first = self.task.loss(shared, batch)
        fixed: dict[str, Tensor] = {k: v.detach() for k, v in shared.items()}
        second = self.task.loss(mixture(self.task, fixed, own), batch)
        return Loss(first.value + second.value, first.buffers | prefixed(OWN, second.buffers))
