"""Client ids that are computed on demand: a million strings would take 100 MB."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload


class Numbered(Sequence[str]):
    """Numbers as ids, padded with zeros to one width so that they sort in numerical order.

    >>> ids = Numbered(1000)
    >>> ids[7], ids.position("007"), "7" in ids, len(ids)
    ('007', 7, False, 1000)
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._width = len(str(max(count - 1, 0)))

    def position(self, client: str) -> int:
        """Return the position of an id."""
        number = int(client) if client.isascii() and client.isdigit() else -1
        if len(client) != self._width or not 0 <= number < self._count:
            raise KeyError(client)
        return number

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[str, ...]: ...
    def __getitem__(self, place: int | slice) -> str | tuple[str, ...]:
        if isinstance(place, slice):
            return tuple(self[number] for number in range(self._count)[place])
        return f"{range(self._count)[place]:0{self._width}d}"

    def __contains__(self, client: object) -> bool:
        try:
            return isinstance(client, str) and self.position(client) >= 0
        except KeyError:
            return False


def in_order(clients: Sequence[str]) -> Sequence[str]:
    """Sort ids; numbered ones are sorted already."""
    return clients if isinstance(clients, Numbered) else tuple(sorted(clients))
