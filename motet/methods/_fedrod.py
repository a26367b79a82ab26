"""FedRoD: a generic head that forgets class frequencies, and a personal one that restores them.

Chen and Chao, "On Bridging Generic and Personalized Federated Learning for Image Classification",
ICLR 2022. https://arxiv.org/abs/2107.00778
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from motet._core import tree
from motet._core.selectors import Selector
from motet._core.tree import State, pick, slot
from motet._training.batching import Batches
from motet._training.fitting import fit
from motet._training.per_group import ByPart
from motet.errors import CapabilityError, RequestError
from motet.method import Card, ClientData
from motet.methods._bases.balanced_softmax import balanced_prior
from motet.methods._bases.residual_model import OWN, ResidualModel, both
from motet.optim import Optimizer
from motet.task import Batch, Loss, Task


@dataclass(frozen=True, kw_only=True)
class FedRoD(ResidualModel):
    """One body, two heads: the personal predictor adds the scores of both.

    Attributes:
        head: The layers of which a client has its own, phi_i, beside the generic ones, psi.
        gamma: Exponent of the class frequencies in the generic head's balanced softmax. 0 is the
            plain loss, and the shared model is then FedAvg's.
        personal_optimizer: Trains phi; `optimizer`, which trains the rest, if None.

    Example:
        >>> import motet
        >>> motet.FedRoD(head=("head",)).name
        'fedrod'
    """

    head: Selector = ("head",)
    gamma: float = 1.0
    personal_optimizer: Optimizer | None = None

    name: ClassVar[str] = "fedrod"
    card: ClassVar[Card] = Card(
        title="FedRoD",
        paper="Chen and Chao, ICLR",
        year=2022,
        link="https://arxiv.org/abs/2107.00778",
        idea="A generic head with a class-balanced loss, plus a personal head with the plain one.",
        shared="a model, trained with the balanced loss",
        private="a second head, whose scores are added",
        down="1",
        up="1",
        new_client="starts a personal head at 0 and trains it, shared model frozen",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.gamma >= 0:
            raise RequestError(f"FedRoD(gamma=) is an exponent of 0 or more; got {self.gamma}.")

    def check(self, task: Task, clients: Sequence[str]) -> list[str]:
        if task.criterion.kind != "classes":
            raise CapabilityError(
                f'fedrod balances classes, but the loss is "{task.criterion.name}"; use '
                "cross_entropy."
            )
        plain = "fedrod with gamma=0 balances nothing: its shared model is fedavg's."
        return super().check(task, clients) + ([plain] if self.gamma == 0 else [])

    def own_names(self, task: Task) -> frozenset[str]:
        # Deviates: phi_i starts at 0.
        return task.select(self.head) & task.parameters

    def client_update(
        self, down: State, client: State, data: ClientData, task: Task
    ) -> tuple[State, State]:
        model = down | client
        trained = self._fit(model, client, data["train"], task, train=model)
        return pick(trained, down), pick(trained, client)

    def adapt(self, down: State, client: State, data: ClientData, task: Task) -> State:
        # Deviates: There is no hypernetwork for phi_i.
        trained = self._fit(down | client, client, data["adapt"], task, train=client)
        return pick(trained, client)

    def after_broadcast(self, down: State, client: State, task: Task) -> State:
        """Predict with the generic head alone: the paper's G-FL accuracy."""
        return down | tree.zeros_like(client)

    def _fit(
        self, model: State, client: State, batches: Batches, task: Task, train: State
    ) -> State:
        own = self.personal_optimizer or self.optimizer
        # An optimizer each, so that a bound on the gradient norm does not tie the two together.
        optimizer = ByPart(own, frozenset(client), rest=self.optimizer)
        scores = task.outputs(both(model)[0], batches.x[:1])
        given = (balanced_prior(batches, scores.shape[-1], self.gamma, scores.dtype),)
        loss = TwoHeads(task)
        return fit(task, model, batches, optimizer, loss=loss, train=train, given=given)


@dataclass(frozen=True)
class TwoHeads:
    """The balanced loss of the generic head, plus the plain loss of both heads' sum.

    The second sees body and generic head as constants, so it trains the personal head alone.
    """

    task: Task

    def __call__(self, state: State, batch: Batch, prior: Tensor) -> Loss:
        """Compute it."""
        shared, _ = both(state)
        generic, buffers = self.task.training_outputs(shared, batch)
        fixed: State = {k: v.detach() for k, v in shared.items()}
        personal, _ = self.task.training_outputs(fixed | slot(OWN, state), batch)
        balanced = self.task.loss_of(generic + prior, batch)
        plain = self.task.loss_of(generic.detach() + personal, batch)
        return Loss(balanced + plain, buffers)
