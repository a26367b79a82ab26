"""Where private client state lives while a run is in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from motet import tree


class MemoryStore:
    """Private states by client. A client that was never trained costs nothing."""

    def __init__(self) -> None:
        self._states: dict[str, Any] = {}

    def __contains__(self, client: str) -> bool:
        return client in self._states

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._states))

    def get(self, client: str) -> Any:
        """Return what the client keeps; the caller must not write into it."""
        return self._states[client]

    def put(self, client: str, state: Any) -> None:
        """Keep a copy of its own, so that no upload can alias it."""
        self._states[client] = tree.clone(state)
