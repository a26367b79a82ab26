"""The interface of stores, and the store in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from motet._core import tree
from motet.errors import StateError


class Store(Protocol):
    """Private states by client. A client that was never trained costs nothing.

    Attributes:
        damaged: Why the state of a client could not be read, by client; it starts afresh.
    """

    @property
    def damaged(self) -> Mapping[str, str]: ...

    def expect(self, template: Callable[[], Any]) -> None:
        """Say how to make a tree like the ones to come: structure does not travel to a disk."""
        ...

    def __contains__(self, client: str) -> bool: ...

    def __iter__(self) -> Iterator[str]:
        """Yield who keeps anything, in the order of their ids."""
        ...

    def __len__(self) -> int: ...

    def get(self, client: str) -> Any:
        """Return what a client keeps; the caller must not write into it.

        Raises:
            KeyError: It keeps nothing, or nothing that can be read.
        """
        ...

    def put(self, client: str, state: Any) -> None:
        """Keep a copy, so that no upload can alias it."""
        ...

    def rows(self, clients: Sequence[str], fresh: Callable[[str], Any]) -> Any:
        """Return what several clients keep as one stack; `fresh` makes what is not there yet."""
        ...

    def put_rows(self, clients: Sequence[str], stacked: Any) -> None:
        """Keep the rows of a stack, a client each."""
        ...

    def commit(self) -> None:
        """Make everything since the last commit durable, all of it or (after a crash) nothing."""
        ...

    def close(self) -> None:
        """Let go of files; what was not committed is forgotten."""
        ...


def with_empty_store(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a new run; a store with what clients kept in another is refused."""
    store: Store | None = settings.get("store")
    if store is not None and len(store):
        raise StateError(
            f"the store already holds what {len(store)} clients kept in an earlier run; a new run "
            "needs an empty one: remove its file, or name another."
        )
    return settings


@runtime_checkable
class CopiedStore(Store, Protocol):
    """A store that does not outlive its run: a checkpoint copies what is in it.

    Attributes:
        changed: Who was put since the last commit: what a checkpoint has to write.
    """

    changed: set[str]


class MemoryStore:
    """Private states in a dictionary.

    Attributes:
        changed: Who was put since the last commit: what a checkpoint has to write.
    """

    def __init__(self) -> None:
        self._states: dict[str, Any] = {}
        self.changed: set[str] = set()
        self.damaged: Mapping[str, str] = {}

    def expect(self, template: Callable[[], Any]) -> None:
        """Nothing to learn: trees are kept as they are."""

    def __contains__(self, client: str) -> bool:
        return client in self._states

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._states))

    def __len__(self) -> int:
        return len(self._states)

    def get(self, client: str) -> Any:
        """Return what the client keeps; the caller must not write into it."""
        return self._states[client]

    def put(self, client: str, state: Any) -> None:
        """Keep a copy, so that no upload can alias it."""
        self._keep(client, tree.clone(state))

    def rows(self, clients: Sequence[str], fresh: Callable[[str], Any]) -> Any:
        """Stack what the clients keep."""
        return tree.stack([self._states[c] if c in self else fresh(c) for c in clients])

    def put_rows(self, clients: Sequence[str], stacked: Any) -> None:
        """Keep a copy of each row: a view would hold on to the whole stack."""
        for position, client in enumerate(clients):
            self._keep(client, tree.row(stacked, position))

    def commit(self) -> None:
        """Forget which states are new."""
        self.changed.clear()

    def close(self) -> None:
        """Nothing to let go of."""

    def _keep(self, client: str, state: Any) -> None:
        self._states[client] = state
        self.changed.add(client)
