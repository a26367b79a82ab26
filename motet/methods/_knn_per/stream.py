"""Datastores for a stream of examples: what to keep when more arrive than fit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from motet._core.neighbours import Datastore
from motet.errors import RequestError

Policy = Literal["first-in-first-out", "frozen", "growing"]
POLICIES: tuple[Policy, ...] = ("first-in-first-out", "frozen", "growing")


@dataclass(frozen=True, kw_only=True)
class StreamStore:
    """A datastore that examples are added to; `add` returns a new one.

    Attributes:
        store: What is remembered now, oldest first, without padding.
        policy: "first-in-first-out" forgets the oldest to make room, "frozen" takes nothing more
            once it is full, "growing" forgets nothing.
        capacity: Keys that fit; "growing" has no use for it.
    """

    store: Datastore
    policy: Policy
    capacity: int

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise RequestError(f"policy= is one of {', '.join(POLICIES)}; got {self.policy!r}.")
        if self.capacity < 0:
            raise RequestError(
                f"capacity= must be 0 or more; got {self.capacity}.", option="capacity"
            )

    def add(self, keys: Tensor, labels: Tensor) -> StreamStore:
        """Add examples, the oldest first."""
        arrived = Datastore(keys, labels, torch.ones(len(labels), dtype=torch.bool))
        joined = arrived if not len(self.store.labels) else _joined(self.store, arrived)
        kept = self._kept(len(joined.labels))
        return replace(self, store=Datastore(*(leaf[kept] for leaf in joined)))

    def _kept(self, size: int) -> slice:
        if self.policy == "growing":
            return slice(None)
        if self.policy == "frozen":
            return slice(self.capacity)
        return slice(max(size - self.capacity, 0), None)


def _joined(a: Datastore, b: Datastore) -> Datastore:
    return Datastore(*(torch.cat(pair) for pair in zip(a, b, strict=True)))
