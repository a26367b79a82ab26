"""FedFomo's affinity matrix P: how it starts, what a round adds to it, and its history."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from motet._core import studies
from motet._core.studies import FinishedRun, Study
from motet.errors import WireError
from motet.method import RoundInfo
from motet.methods._fedfomo.exchange import NOBODY, Server, Up, positions
from motet.methods._fedfomo.mixing import shares

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
        _check_owners(up.owners, len(row))
        known = up.owners != NOBODY
        matrix[row[client], up.owners[known]] += affinity_step(up.weights, rule)[known]
    return matrix


def _check_owners(owners: Tensor, clients: int) -> None:
    """Refuse an upload about models of clients that do not exist."""
    wrong = owners[(owners < NOBODY) | (owners >= clients)]
    if len(wrong):
        raise WireError(
            f"the owner of a model is a client from 0 to {clients - 1}; got {int(wrong[0])}."
        )


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
    return np.stack(list(_affinities(start, clients, notes)))


def affinity_studies(start: Tensor, run: FinishedRun) -> list[Study]:
    """Show who federates with whom: P from round to round, and what each mixture was made of."""
    clients = sorted(run.setting.federation.clients)
    labels = ["start", *(f"round {note['round']}" for note in run.notes)]
    return [
        studies.matrix(
            "Who federates with whom",
            "Row: a client. Column: whose model it was offered. A high affinity is sent again.",
            quantity="affinity",
            clients=clients,
            frames=zip(labels, _affinities(start, clients, run.notes), strict=True),
        ),
        studies.matrix(
            "What each client mixed",
            "Row: a client of the round. Column: a model it judged on its own validation data. "
            "The shares of those that helped; all 0 where nothing did.",
            quantity="share of the mixture",
            clients=clients,
            frames=(
                (label, _as_matrix(clients, note["shares"]))
                for label, note in zip(labels[1:], run.notes, strict=True)
            ),
        ),
    ]


def _affinities(
    start: Tensor, clients: Sequence[str], notes: Iterable[Mapping[str, Any]]
) -> Iterator[NDArray[np.float64]]:
    matrix = start.numpy()
    yield matrix
    for note in notes:
        known = _as_matrix(sorted(clients), note["affinity"])
        matrix = np.where(np.isnan(known), matrix, known)
        yield matrix


def _as_matrix(
    clients: Sequence[str], rows: Mapping[str, Mapping[str, float]]
) -> NDArray[np.float64]:
    """Put the entries that a note has in their places; NaN is everywhere else."""
    place = {client: i for i, client in enumerate(clients)}
    matrix = np.full((len(place), len(place)), np.nan)
    for client, row in rows.items():
        for peer, value in row.items():
            matrix[place[client], place[peer]] = value
    return matrix
