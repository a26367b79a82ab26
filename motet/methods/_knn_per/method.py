"""kNN-Per: a global model, and each client's memory of its own examples beside it.

Marfoq et al., "Personalized Federated Learning through Local Memorization", ICML 2022.
https://proceedings.mlr.press/v162/marfoq22a.html
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from motet._core import studies
from motet._core.keys import Key
from motet._core.neighbours import (
    Datastore,
    Kernel,
    NearestVote,
    best_lambda,
    blocks,
    correct_by_lambda,
    mix,
)
from motet._core.selectors import module_path
from motet._core.studies import FinishedRun, Study
from motet._core.tree import State, float_type
from motet._training.batching import Batches, Plan
from motet.errors import CapabilityError, RequestError
from motet.method import Card, ClientData
from motet.methods._fedavg import FedAvg
from motet.methods._knn_per.capacity import capacity_study, validation_table
from motet.methods._knn_per.datastore import NOTHING, Capacity, check_capacity, stored_rows
from motet.methods._knn_per.protonn import Prototypes, ask_prototypes, compress
from motet.methods._knn_per.unequal import CAPACITIES as UNEQUAL
from motet.methods._knn_per.unequal import shift_study, unequal_study
from motet.optim import Optimizer, Sgd
from motet.task import Task

LOOK_AT_ONCE = 64  # examples per pass through the network, of each client of a stack


class Served(NamedTuple):
    """A client's predictor: the global model, its own memory, and how much it trusts the latter."""

    model: State
    memory: Datastore | Prototypes
    lam: Tensor


@dataclass(frozen=True, kw_only=True)
class KNNPer(FedAvg):
    """Training is FedAvg; a client mixes in its nearest own examples when it predicts.

    p(x) = lam * p_knn(x) + (1 - lam) * p_global(x)

    Attributes:
        features: The module whose input is the representation phi(x); "head" is the last block.
        k: Neighbours that vote.
        lam: Weight of the neighbours: 0 is FedAvg, 1 is kNN alone. None lets each client choose, on
            its validation data or, without any, by leaving one out of its memory.
        capacity: Examples that a client remembers: a count, or a fraction (a float) of what it has,
            drawn uniformly; 0 is FedAvg, None is all.
        kernel: "laplace" is the paper's exp(-d / scale), "gauss_dim" the released code's
            exp(-d^2 / (features * scale)).
        scale: Length scale of the kernel; large is a plain vote.
        interpolate: "probabilities" (the paper), or "logits": what the released code does, p_knn
            mixed with unnormalised scores.
        grid: How many values of lam are tried, evenly from 0 to 1.
        prototypes: Compress c examples to ceil(c / prototypes) learned ones; None keeps all.
        prototype_steps: Full-batch steps that fit the prototypes.
        prototype_optimizer: Takes these steps.

    Example:
        >>> import motet
        >>> motet.KNNPer().name
        'knn-per'
    """

    features: str = "head"
    k: int = 10
    lam: float | None = None
    capacity: Capacity = None
    kernel: Kernel = "laplace"
    scale: float = 1.0
    interpolate: Literal["probabilities", "logits"] = "probabilities"
    grid: int = 11
    prototypes: int | None = None
    prototype_steps: int = 20
    prototype_optimizer: Optimizer = Sgd(lr=0.03)

    name: ClassVar[str] = "knn-per"
    forward_only: ClassVar[tuple[str, ...]] = ("store", "select")
    one_network: ClassVar[bool] = False
    card: ClassVar[Card] = Card(
        title="kNN-Per",
        paper="Marfoq et al., ICML",
        year=2022,
        link="https://proceedings.mlr.press/v162/marfoq22a.html",
        idea="Mix the global model with the labels of a client's own nearest examples.",
        shared="the whole model",
        private="representations of the client's examples, and lam",
        down="1",
        up="1",
        new_client="stores its examples, no training",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.voting()  # refuses k, kernel and scale
        check_capacity(self.capacity)
        if self.interpolate not in ("probabilities", "logits"):
            raise RequestError(
                f'interpolate= is "probabilities" or "logits"; got {self.interpolate!r}.'
            )
        if self.lam is not None and not 0 <= self.lam <= 1:
            raise RequestError(f"lam= is between 0 and 1, or None; got {self.lam}.")
        if self.grid < 2:
            raise RequestError(f"grid= must be 2 or more; got {self.grid}.", option="grid")
        if self.prototypes is not None and self.prototypes < 2:
            raise RequestError(
                f"prototypes= must be 2 or more, or None; got {self.prototypes}.",
                option="prototypes",
            )

    def voting(self) -> NearestVote:
        """How neighbours vote."""
        return NearestVote(k=self.k, kernel=self.kernel, scale=self.scale)

    def adapt_plans(self) -> dict[str, Plan]:
        # Only the order of "store" is used: a permutation, the same in every round. One example
        # per step, so that clients of any size may be stacked.
        # Deviates: The subset that a small store keeps is drawn once per client.
        store = Plan(epochs=1, batch_size=1, stream="store", fixed=True)
        select = Plan(epochs=1, batch_size=1, stream="select", split="val")
        return super().adapt_plans() | {"store": store, "select": select}

    def check(self, task: Task, clients: Sequence[str]) -> list[str]:
        module_path(task.skeleton, self.features)
        if task.criterion.kind not in ("classes", "binary"):
            raise CapabilityError(
                f'knn-per votes on one class per example, but the loss is "{task.criterion.name}"; '
                "use cross_entropy."
            )
        if task.criterion.kind == "binary" and self.interpolate == "logits":
            raise CapabilityError(
                "one score for two classes cannot be mixed with a vote; use "
                'loss="cross_entropy" with two outputs, or interpolate="probabilities".'
            )
        if task.example is not None:
            self.look(task.init(Key(0)), task.example, task)  # refuses what it cannot look at
        if self.lam == 0 or self.capacity == 0:
            return [f"knn-per with lam={self.lam} and capacity={self.capacity} is fedavg."]
        return []

    def personalize(self, down: State, client: State, data: ClientData, task: Task) -> Any:
        model, stored = down | client, data["store"]
        rows, real = stored_rows(stored, self.capacity)
        if not len(rows):
            return _served_without_memory(model)
        keys, scores = self.look(model, stored.x[rows], task)
        store = Datastore(keys, stored.y[rows], real)
        memory = self._remember(store, scores.shape[-1], task)
        if self.lam is not None:
            return Served(model, memory, torch.tensor(self.lam, dtype=scores.dtype))
        grid = torch.linspace(0, 1, self.grid, dtype=scores.dtype)
        alone = self._left_out_lambda(store, scores, grid)
        lam = self._validated_lambda(model, memory, data["select"], grid, task)
        return Served(model, memory, torch.where(data["select"].size > 0, lam, alone))

    def studies(self, run: FinishedRun) -> list[Study]:
        clients = studies.trained(run)
        lams = run.ask(trust, clients)
        trusted = studies.per_client(
            "How much each client trusts its own examples",
            "lam: 1 is the vote of a client's nearest examples alone, 0 the global model.",
            quantity="lam",
            values={client: float(rows[0]) for client, rows in lams.items()},
            total=len(run.setting.store),
        )
        chosen = {client: float(rows[0]) for client, rows in lams.items()}
        return [
            *([trusted] if self.lam is None else []),
            *(self._memory_studies(run, clients, chosen) if self.prototypes is None else []),
        ]

    def _memory_studies(
        self, run: FinishedRun, clients: Sequence[str], lams: Mapping[str, float]
    ) -> list[Study]:
        table = validation_table(run, self, clients, also=UNEQUAL)
        remembered = [] if table is None else [*capacity_study(table), *unequal_study(table)]
        return [*remembered, *shift_study(run, self, clients, lams)]

    def predict(self, personal: Served, x: Tensor, task: Task) -> Tensor:
        features, scores = self.look(personal.model, x, task)
        mixed = mix(scores, self.ask(personal.memory, features, scores.shape[-1]), personal.lam)
        # Scores mixed with a vote are neither scores nor probabilities; softmax keeps their order.
        return mixed.softmax(-1) if self.interpolate == "logits" else mixed

    def after_broadcast(self, down: State, client: State, task: Task) -> Any:
        return _served_without_memory(down | client)

    def after_local(self, down: State, up: State, client: State, task: Task) -> Any:
        return _served_without_memory(up | client)

    def look(self, model: State, x: Tensor, task: Task) -> tuple[Tensor, Tensor]:
        """Return representations of examples, and what the model predicts for them.

        Args:
            model: The global model.
            x: Inputs, one row per example.
            task: The network and its loss.
        """
        path = module_path(task.skeleton, self.features)
        seen = [task.features_and_outputs(model, some, path) for some in blocks(x, LOOK_AT_ONCE)]
        features, outputs = (torch.cat(parts) for parts in zip(*seen, strict=True))
        scores = outputs if self.interpolate == "logits" else task.criterion.probabilities(outputs)
        if scores.ndim != 2:
            raise CapabilityError(
                "knn-per predicts one label per example, but the network scores "
                f"{scores.shape[1]} positions; use data with one target each, such as "
                'shakespeare-next, and a network with predict="last".'
            )
        return features, scores

    def ask(self, memory: Datastore | Prototypes, features: Tensor, classes: int) -> Tensor:
        """Return the neighbours' class probabilities; 0 if there is no memory.

        Args:
            memory: The client's datastore.
            features: Representations, one row per example.
            classes: Number of classes.

        Returns:
            A tensor [examples, classes].
        """
        if not len(memory.keys):
            return features.new_zeros(features.shape[0], classes)
        if isinstance(memory, Prototypes):
            return ask_prototypes(memory, features)
        return self.voting().ask(memory, features, classes)

    def _remember(self, store: Datastore, classes: int, task: Task) -> Datastore | Prototypes:
        if self.prototypes is None:
            return store
        return compress(
            store,
            self.prototypes,
            classes,
            task=task,
            optimizer=self.prototype_optimizer,
            steps=self.prototype_steps,
        )

    def _validated_lambda(
        self,
        model: State,
        memory: Datastore | Prototypes,
        select: Batches,
        grid: Tensor,
        task: Task,
    ) -> Tensor:
        if not len(select.y):
            return grid[0]
        features, scores = self.look(model, select.x, task)
        votes = self.ask(memory, features, scores.shape[-1])
        real = torch.arange(len(select.y)) < select.size
        return best_lambda(correct_by_lambda(scores, votes, select.y, grid), real, grid)

    def _left_out_lambda(self, store: Datastore, scores: Tensor, grid: Tensor) -> Tensor:
        # Deviates: without validation data, lam is chosen by leaving one out. The paper does not
        # say what such a client does. An example has no vote on itself: with one, lam = 1 would
        # always look perfect.
        votes = self.voting().ask_each_other(store, scores.shape[-1])
        return best_lambda(correct_by_lambda(scores, votes, store.labels, grid), store.real, grid)


def _served_without_memory(model: State) -> Served:
    return Served(model, NOTHING, torch.zeros((), dtype=float_type(model)))


def trust(personal: Served, x: Tensor, _: Task) -> Tensor:
    """Say how much a predictor trusts its memory: lam, once per example."""
    return personal.lam.expand(len(x))
