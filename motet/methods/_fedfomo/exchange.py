"""What FedFomo's server keeps, what its clients keep, and how models are packed to be sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from motet._core import tree
from motet._core.tree import State
from motet.method import RoundInfo

NOBODY = -1  # the owner of an average, and the row of a client that is not registered


class Server(NamedTuple):
    """The bank of uploaded models and the affinity matrix; rows in the order of sorted ids."""

    models: State  # [clients, ...], the last upload of each
    uploaded: Tensor  # [clients], False: never uploaded, so not available
    affinity: Tensor  # [clients, clients], P in double precision


class Client(NamedTuple):
    """A client's model before and after its last local training: theta^(t-1) and theta^(t)."""

    previous: State
    current: State


class Down(NamedTuple):
    """The models sent to one client: always the same number of slots, empty ones hold zeros."""

    slots: tuple[State, ...]
    owners: Tensor  # [slots], whose models they are, by row of the bank
    valid: Tensor  # [slots], False where a slot is empty
    own: Tensor  # [1], the receiver's row


class Up(NamedTuple):
    """The trained model, and the raw weights w of the models that were evaluated."""

    model: State
    owners: Tensor  # [evaluated]
    weights: Tensor  # [evaluated]


class Parcel(NamedTuple):
    """A model on its way to a client, and the row of its owner."""

    model: State
    owner: int


def positions(info: RoundInfo) -> dict[str, int]:
    """Say which row of the bank is whose."""
    return {client: row for row, client in enumerate(info.clients)}


def open_bank(initial: State, clients: int) -> State:
    """Make room for a model of every client."""
    return tree.tree_map(lambda leaf: leaf.expand(clients, *leaf.shape).clone(), initial)


def parcel(bank: State, row: int) -> Parcel:
    """Take one model out of the bank: a view, so that packing for many clients copies nothing."""
    return Parcel(tree.tree_map(lambda leaf: leaf[row], bank), row)


def pack(parcels: Sequence[Parcel], own: int, *, slots: int, bank: State) -> Down:
    """Put parcels into slots; downloads must be alike to be stacked, so the rest is zeros."""
    idle = slots - len(parcels)
    blank = tree.tree_map(lambda leaf: leaf.new_zeros(()).expand(leaf.shape[1:]), bank)
    return Down(
        slots=(*(p.model for p in parcels), *[blank] * idle),
        owners=torch.tensor([p.owner for p in parcels] + [NOBODY] * idle, dtype=torch.int64),
        valid=torch.tensor([True] * len(parcels) + [False] * idle, dtype=torch.bool),
        own=torch.tensor([own]),
    )


def deposit(server: Server, uploads: Mapping[int, State]) -> Server:
    """Replace the models of some rows, and make them available."""
    # Deviates: an upload with NaN or infinity is not offered. The paper offers every upload, but
    # this one helps no client and spoils every average it enters.
    sound = {row: model for row, model in uploads.items() if tree.is_finite(model)}
    if not sound:
        return server
    models = {
        name: torch.stack(
            [sound[i][name] if i in sound else old for i, old in enumerate(bank.unbind())]
        )
        for name, bank in server.models.items()
    }
    rows = torch.tensor(list(sound))
    return server._replace(models=models, uploaded=server.uploaded.index_fill(0, rows, 1))
