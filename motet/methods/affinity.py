"""FedFomo's affinity matrix P: how it starts, what a round adds to it, and its history."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from motet.method import RoundInfo
from motet.methods.fomo_exchange import NOBODY, Server, Up, positions
from motet.methods.model_mixing import shares

Rule = Literal["paper", "release"]
RULES = ("paper", "release")
OWN = {"paper": 1.0, "release": 0.1}  # a client's affinity to its own model at the start
LEAST_TOTAL = 1e-9  # the authors' code adds it to a smaller sum before it divides


def first_affinity(clients: int, rule: Rule) -> Tensor:
    """Make P before the first round: all other clients have the same chance."""
    return OWN[rule] * torch.eye(clients, dtype=torch.float64)


def affinity_step(weights: Tensor, rule: Rule) -> Tensor:
    """Say what a round adds to a row of P: the raw weights, or ("release") w / |sum of w|."""
    if rule == "paper":
        return weights
    total = weights.sum().abs()
    return weights / torch.where(total < LEAST_TOTAL, total + LEAST_TOTAL, total)


def updated(matrix: Tensor, uploads: Mapping[str, Up], info: RoundInfo, rule: Rule) -> Tensor:
    """Add a round's weights to P, in the entries of the models that were evaluated."""
    matrix, row = matrix.clone(), positions(info)
    for client, up in uploads.items():
        known = up.owners != NOBODY
        matrix[row[client], up.owners[known]] += affinity_step(up.weights, rule)[known]
    return matrix


def round_notes(server: Server, uploads: Mapping[str, Up], info: RoundInfo) -> dict[str, Any]:
    """Write down which models each client evaluated: its entries of P now, and their shares w*."""
    row = positions(info)

    def by_owner(up: Up, values: Tensor) -> dict[str, float]:
        pairs = zip(up.owners.tolist(), values.tolist(), strict=True)
        return {info.clients[owner]: value for owner, value in pairs if owner != NOBODY}

    return {
        "affinity": {
            c: by_owner(up, server.affinity[row[c], up.owners]) for c, up in uploads.items()
        },
        "shares": {c: by_owner(up, shares(up.weights)) for c, up in uploads.items()},
    }


def affinity_history(
    start: Tensor, clients: Sequence[str], notes: Iterable[Mapping[str, Any]]
) -> NDArray[np.float64]:
    """Rebuild P before the first round and after each, [rounds + 1, clients, clients], from notes.

    Rows and columns are in the order of sorted ids.
    """
    place = {client: i for i, client in enumerate(sorted(clients))}
    matrices = [start.numpy().copy()]
    for note in notes:
        matrix = matrices[-1].copy()
        for client, row in note["affinity"].items():
            for peer, value in row.items():
                matrix[place[client], place[peer]] = value
        matrices.append(matrix)
    return np.stack(matrices)
