"""Relations between tasks: the matrix Omega that couples the clients of MOCHA."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from motet._core.tree import State, float_type

Relation = Literal["learnt", "mean"]
FLOOR = 0.1  # of the mean eigenvalue: an exactly singular covariance would couple infinitely


class Tasks(NamedTuple):
    """Every client's model, stacked in the order of client ids, and how they are related."""

    models: State  # [clients, ...]
    omega: Tensor  # [clients, clients], in double precision


class Coupling(NamedTuple):
    """What one client must know of the others: Omega_ii, and b_i, the sum of their Omega_ij w_j."""

    own: Tensor
    others: State


def mean_relation(clients: int) -> Tensor:
    """Couple all clients to the mean: tr(W Omega W^T) is the spread around it."""
    eye = torch.eye(clients, dtype=torch.float64)
    # One client is its own mean; left without any term, a machine would have no margin.
    return eye - torch.full_like(eye, 1 / clients) if clients > 1 else eye


def learnt_relation(models: State) -> Tensor:
    """Learn the relation: the inverse of (W^T W)^(1/2), scaled so that unrelated tasks give I."""
    flat = torch.cat([v.double().flatten(1) for v in models.values()], dim=1)
    values, vectors = torch.linalg.eigh(flat @ flat.mT)
    spread = values.clamp(min=0).sqrt()
    spread = spread / spread.mean().clamp(min=1e-30)
    # Deviates: Eigenvalues of the covariance are floored at a tenth of their mean.
    inverse: Tensor = vectors @ torch.diag(1 / spread.clamp(min=FLOOR)) @ vectors.mT
    return inverse


def coupling(tasks: Tasks, client: int) -> Coupling:
    """Reduce the other clients to one vector: the joint gradient needs no more."""
    weights = tasks.omega[client].clone()
    own = weights[client].clone()
    weights[client] = 0
    others = {k: _weigh(weights, v) for k, v in tasks.models.items()}
    return Coupling(own.to(float_type(tasks.models)), others)


def to_the_mean(tasks: Tasks) -> Coupling:
    """Couple a client that has no row in Omega to the mean of all models."""
    clients = len(tasks.omega)
    weights = torch.full((clients,), -1 / clients, dtype=torch.float64)
    others = {k: _weigh(weights, v) for k, v in tasks.models.items()}
    return Coupling(torch.ones((), dtype=float_type(tasks.models)), others)


def replaced(models: State, uploads: dict[str, State], clients: Sequence[str]) -> State:
    """Put the models that have come up in their places."""
    place = {client: i for i, client in enumerate(clients)}
    new = {k: v.clone() for k, v in models.items()}
    for client, upload in uploads.items():
        for name in new:
            new[name][place[client]] = upload[name]
    return new


def _weigh(weights: Tensor, stacked: Tensor) -> Tensor:
    total: Tensor = torch.tensordot(weights, stacked.double(), dims=1)
    return total.to(stacked.dtype)
