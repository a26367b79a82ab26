"""Simulated faults of a federation: seeded, the same on every backend, and reported.

A reply is lost *after* the local work, as in a real federation: the client has moved on, the server
does not know. To lose it before would flatter methods that keep state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from motet._core import tree
from motet._core.keys import Key
from motet._training.batching import Batches
from motet.errors import RequestError
from motet.method import ClientData

HUGE = 0.97  # of the largest number of a type
Corruption = Literal["nan", "inf", "scaled", "flipped", "stale", "huge"]


@dataclass(frozen=True, kw_only=True)
class Faults:
    """Faults, as shares between 0 and 1; all are 0 unless asked for.

    Attributes:
        lost: Replies that are lost after the local work, in each round anew.
        slow: Clients that manage only a part of their steps, in each round anew.
        pace: The part that they manage.
        unavailable: Clients that cannot be drawn, in each round anew.
        late: Clients that join only in round `joins`; always the same ones.
        joins: The first round (from 1) with everybody.
        corrupt: Clients whose every upload is corrupt; always the same ones. Each is drawn by
            itself, so a share is met on average; to have exactly these, give their ids.
        corruption: How: "nan" or "inf" in it; the update "scaled" by `factor`, or "flipped" and
            scaled; "stale": the model that everybody started from; "huge": numbers that are finite,
            and nearly the largest of their type (3.3e38 for single precision).
        factor: Of "scaled" and "flipped".

    Example:
        >>> import motet
        >>> world = motet.testing.ragged()
        >>> faults = Faults(lost=0.5)
        >>> settings = {"rounds": 1, "faults": faults}
        >>> run = motet.run(motet.FedAvg(), world.task, world.data, **settings)
        >>> run.rounds_done
        1
    """

    lost: float = 0.0
    slow: float = 0.0
    pace: float = 0.5
    unavailable: float = 0.0
    late: float = 0.0
    joins: int = 1
    corrupt: float | tuple[str, ...] = 0.0
    corruption: Corruption = "nan"
    factor: float = 10.0

    def __post_init__(self) -> None:
        for name in ("lost", "slow", "pace", "unavailable", "late"):
            _check_share(name, getattr(self, name), "a share from 0 to 1")
        if not isinstance(self.corrupt, tuple):
            _check_share("corrupt", self.corrupt, "a share from 0 to 1, or a tuple of client ids")
        if self.corruption not in get_args(Corruption):
            known = ", ".join(get_args(Corruption))
            raise RequestError(f'no corruption is called "{self.corruption}"; there are {known}.')

    def available(self, clients: Sequence[str], number: int, key: Key) -> tuple[str, ...]:
        """Return the clients that can be drawn in a round.

        Args:
            clients: Ids of the clients.
            number: Number of the round, from 0.
            key: Source of the randomness.
        """
        away = self._struck("unavailable", self.unavailable, key, number)
        late = self._struck("late", self.late if number + 1 < self.joins else 0.0, key)
        return tuple(client for client in clients if not away(client) and not late(client))

    def slowed(self, data: ClientData, client: str, number: int, key: Key) -> ClientData:
        """Return a client's batches without the steps that a slow client does not manage.

        Args:
            data: Batches by phase.
            client: Id of the client.
            number: Number of the round, from 0.
            key: Source of the randomness.
        """
        if not self.slow or not self._struck("slow", self.slow, key, number)(client):
            return data
        return {name: _first_steps(batches, self.pace) for name, batches in data.items()}

    def losing(self, number: int, key: Key) -> Callable[[str], bool]:
        """Return a function that tells whether a client's reply in a round is lost.

        Args:
            number: Number of the round, from 0.
            key: Source of the randomness.
        """
        return self._struck("lost", self.lost, key, number)

    def corrupting(self, key: Key) -> Callable[[str], bool]:
        """Return a function that tells whether a client's uploads are corrupt.

        Args:
            key: Source of the randomness.
        """
        if isinstance(self.corrupt, tuple):
            return self.corrupt.__contains__
        return self._struck("corrupt", self.corrupt, key)

    def spoiled(self, upload: Any, down: Any, initial: tree.State) -> Any:
        """Return a corrupted upload; a model's update is its difference from what was sent.

        Args:
            upload: What the client would have sent.
            down: What the clients were sent.
            initial: The model that all started from.
        """
        sent = dict(tree.flatten(down))
        started = dict(tree.flatten(initial))

        def spoil(name: str, leaf: Tensor) -> Tensor:
            if not leaf.is_floating_point():
                return leaf
            if self.corruption in ("nan", "inf"):
                return torch.full_like(leaf, float(self.corruption))
            if self.corruption == "huge":
                return torch.full_like(leaf, HUGE * torch.finfo(leaf.dtype).max)
            origin = sent.get(name, torch.zeros_like(leaf))
            if self.corruption == "stale":
                return started.get(name, origin).to(leaf.dtype).clone()
            sign = -1.0 if self.corruption == "flipped" else 1.0
            return origin + sign * self.factor * (leaf - origin)

        return tree.unflatten(upload, {n: spoil(n, leaf) for n, leaf in tree.flatten(upload)})

    def _struck(self, kind: str, share: float, key: Key, *when: int) -> Callable[[str], bool]:
        """Draw for each client by itself, so that a draw does not depend on the other clients."""

        def struck(client: str) -> bool:
            draw = key.fold("faults", kind, *when, client).integer(bits=32)
            return draw < share * 2**32

        return struck


def _check_share(name: str, value: Any, expected: str) -> None:
    if not isinstance(value, int | float) or not 0 <= value <= 1:
        raise RequestError(f"faults.{name} is {expected}; got {value!r}.")


NO_FAULTS = Faults()


def _first_steps(batches: Batches, pace: float) -> Batches:
    active = batches.weight.any(-1)
    managed = max(1, int(pace * int(active.sum())))
    keep = active & (active.cumsum(0) <= managed)
    return batches._replace(weight=batches.weight * keep[:, None])
