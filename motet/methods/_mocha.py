"""MOCHA: linear models, one per client, coupled by a relation that is learnt; a convex solver.

Smith et al., "Federated Multi-Task Learning", NeurIPS 2017. https://arxiv.org/abs/1705.10467
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from motet._core.tree import State, float_type
from motet._training.batching import Batches, Plan
from motet.errors import CapabilityError, RequestError
from motet.method import Card, ClientData, PerClient, RoundInfo
from motet.methods._bases.relations import Coupling, Tasks
from motet.methods._mocha_deep import MochaDeep
from motet.task import Task


class Bounded(NamedTuple):
    """A client's coupling, and rho: how much the separable bound must exceed its own term."""

    coupling: Coupling
    rho: Tensor


@dataclass(frozen=True, kw_only=True)
class Mocha(MochaDeep):
    """Support vector machines, one against the rest, coupled by lam tr(W Omega W^T).

    Each round every client solves its block of a separable upper bound of the joint objective, by
    stochastic dual coordinate ascent; so the joint objective never rises.

    Attributes:
        lam: Strength of the coupling, which is also the margin's regulariser: above 0.
        passes: Passes of dual coordinate ascent per round; `epochs` and the optimizer are not used.

    Example:
        >>> import motet
        >>> motet.Mocha(passes=10).name
        'mocha'
    """

    lam: float = 0.01
    passes: int = 10

    name: ClassVar[str] = "mocha"
    card: ClassVar[Card] = Card(
        title="MOCHA",
        paper="Smith et al., NeurIPS",
        year=2017,
        link="https://arxiv.org/abs/1705.10467",
        idea="Linear models, one per client, coupled by a relation that is learnt.",
        shared="the relation between clients",
        private="a model (the server sees it, too)",
        down="1",
        up="1",
        new_client="solves its own machine, pulled towards the mean of all",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.lam > 0 or self.passes < 1:
            raise RequestError(
                "Mocha(lam=) is above 0, or its machines have no margin, and passes= is 1 or more; "
                f"got lam={self.lam} and passes={self.passes}."
            )

    def plans(self) -> dict[str, Plan]:
        return {"train": Plan(epochs=self.passes, batch_size=1)}

    def adapt_plans(self) -> dict[str, Plan]:
        return {"adapt": Plan(epochs=self.passes, batch_size=1, stream="adapt")}

    def check(self, task: Task, clients: Sequence[str]) -> list[str]:
        layers = [m for m in task.skeleton.modules() if list(m.parameters(recurse=False))]
        if len(layers) != 1 or not isinstance(layers[0], nn.Linear):
            kinds = [type(layer).__name__ for layer in layers]
            raise CapabilityError(
                f"MOCHA's solver is for one linear layer; this network has {kinds[:4]}. Use "
                'mocha-deep, or the network "logistic".'
            )
        if task.criterion.kind != "classes":
            raise CapabilityError("MOCHA trains support vector machines: it needs classes.")
        return []

    def broadcast(self, server: Tasks, info: RoundInfo) -> PerClient:
        own = server.omega.diagonal().abs().clamp(min=1e-12)
        rho = (server.omega.abs().sum(1) / own).max().to(float_type(server.models))
        sent = super().broadcast(server, info)
        return PerClient({c: Bounded(down, rho) for c, down in sent.items()})

    def client_update(  # type: ignore[override]
        self, down: Bounded, client: State, data: ClientData, task: Task
    ) -> tuple[State, State]:
        own = self._solve(client, down, data["train"])
        return own, own

    def adapt(  # type: ignore[override]
        self, down: Bounded, client: State, data: ClientData, task: Task
    ) -> State:
        start = {k: -v / down.coupling.own for k, v in down.coupling.others.items()}
        return self._solve(start, down, data["adapt"])

    def _solve(self, own: State, down: Bounded, batches: Batches) -> State:
        """Minimise hinge + lam rho Omega_ii ||w - centre||^2, the client's block of the bound."""
        diagonal = down.coupling.own
        slope = {k: diagonal * own[k] + v for k, v in down.coupling.others.items()}
        centre = {k: own[k] - slope[k] / (down.rho * diagonal) for k in own}
        weight = next(k for k, v in own.items() if v.ndim == 2)
        bias = next((k for k, v in own.items() if v.ndim == 1), None)
        start = centre[weight]
        if bias is not None:
            # Deviates: The bias is regularised like a weight.
            start = torch.cat([start, centre[bias][:, None]], dim=1)
        # Deviates: The bound is solved in the primal variables' own block.
        solved = dual_ascent(
            start, 2 * self.lam * down.rho * diagonal, batches, constant=bias is not None
        )
        parts = {weight: solved[:, : own[weight].shape[1]]}
        return own | parts | ({bias: solved[:, -1]} if bias is not None else {})


def dual_ascent(centre: Tensor, mu: Tensor, batches: Batches, *, constant: bool) -> Tensor:
    """Minimise mean hinge(y w.x) + mu/2 ||w - centre||^2 for each class against the rest.

    One dual variable per example and class; a step maximises the dual over one example exactly.
    """
    x = batches.x.flatten(1).to(centre.dtype)
    if constant:
        x = torch.cat([x, torch.ones(x.shape[0], 1, dtype=x.dtype)], dim=1)
    signs = 2.0 * F.one_hot(batches.y, centre.shape[0]).to(x.dtype) - 1  # [examples, classes]
    size = batches.size.to(x.dtype)
    alpha, w = torch.zeros_like(signs), centre
    for step in range(batches.rows.shape[0]):
        row, real = batches.rows[step, 0], batches.weight[step, 0]
        x_s, y_s, old = x[row], signs[row], alpha[row]
        gap = (1 - y_s * (w @ x_s)) * mu * size / x_s.square().sum().clamp(min=1e-12)
        change = real * (y_s * (y_s * old + gap).clamp(0, 1) - old)  # [classes]
        here = (torch.arange(x.shape[0]) == row).to(x.dtype)[:, None]
        alpha = alpha + here * change
        w = w + change[:, None] * x_s / (mu * size)
    return w
