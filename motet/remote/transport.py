"""What the rounds need of a network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from motet.remote.parcels import Parcel


class Delivery(NamedTuple):
    """What came back, by client: everybody who was written to is in one of the two."""

    replies: Mapping[str, Parcel]
    lost: Mapping[str, str]  # why no reply came


class Transport(Protocol):
    """Carries parcels to clients by name, and brings their replies."""

    def present(self) -> tuple[str, ...]:
        """List who can be reached now, sorted."""
        ...

    def exchange(
        self, action: str, parcels: Mapping[str, Parcel], *, number: int, deadline_s: float
    ) -> Delivery:
        """Send each client its own parcel, and wait for the replies to these, no longer."""
        ...
