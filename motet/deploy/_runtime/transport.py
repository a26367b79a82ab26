"""The interface of transports, which carry messages to clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from motet.deploy._runtime.parcels import Parcel


class Delivery(NamedTuple):
    """The result of an exchange, by client: every client is in one of the two."""

    replies: Mapping[str, Parcel]
    lost: Mapping[str, str]  # why there is no reply


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
