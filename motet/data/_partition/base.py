"""The base class of partitions, and the checks of their fields."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from motet._core.keys import Key
from motet.data._raw import Raw
from motet.errors import CapabilityError, RequestError

Rows = NDArray[np.int64]


class Partition(ABC):
    """A recipe that divides rows among clients; subclass it and write `assign`.

    The same key gives the same division on every machine. Every recipe finishes: an impossible
    request raises an error that gives the numbers, instead of being drawn again and again.

    Example:
        >>> import motet
        >>> import numpy as np
        >>> class Halves(Partition):
        ...     def assign(self, labels, key, coarse=None):
        ...         return np.array_split(np.arange(len(labels)), 2)
        >>> [rows.tolist() for rows in Halves().assign(np.zeros(5), motet.Key(0))]
        [[0, 1, 2], [3, 4]]
    """

    needs_classes: ClassVar[bool] = True

    @abstractmethod
    def assign(
        self, labels: NDArray[Any], key: Key, coarse: NDArray[Any] | None = None
    ) -> list[Rows]:
        """Divide the rows 0..len(labels)-1 among clients.

        Args:
            labels: Label of each row.
            key: Source of the randomness.
            coarse: Coarse label of each row, where the data have some.

        Returns:
            A sorted array of row numbers for each client.
        """

    def strata(self, raw: Raw, key: Key) -> NDArray[np.int64]:
        """Return what `assign` divides by, for each row; official test rows follow it as well.

        Args:
            raw: The rows to divide.
            key: Source of the randomness.

        Raises:
            CapabilityError: The partition divides by class, and the data have no class per row.
        """
        if raw.classes is not None and raw.y.ndim == 1:
            return np.asarray(raw.y, np.int64)
        if self.needs_classes:
            raise CapabilityError(
                f"{type(self).__name__} divides by class, but these data have no class per row. "
                "Use IID or QuantitySkew, or Natural if every row has a client."
            )
        return np.zeros(len(raw.y), np.int64)

    def names(self, raw: Raw, parts: list[Rows]) -> tuple[str, ...]:
        """Return names for the clients: numbers with leading zeros, so that they sort in order.

        Args:
            raw: The rows to divide.
            parts: What `assign` returned.
        """
        width = len(str(len(parts) - 1))
        return tuple(f"{number:0{width}d}" for number in range(len(parts)))


def require_whole(name: str, value: Any, least: int) -> None:
    """Refuse a field that is not a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise RequestError(
            f"{name} must be a whole number of at least {least}, got {value!r}.", option=name
        )


def require_positive(name: str, value: float) -> None:
    """Refuse a concentration that is not positive and finite."""
    if not 0 < value < float("inf"):
        raise RequestError(f"{name} must be a finite number above 0, got {value!r}.", option=name)


def require_enough(rows: int, clients: int, minimum: int) -> None:
    """Refuse a request for more samples than there are."""
    if clients * minimum > rows:
        raise RequestError(
            f"{clients} clients with at least {minimum} samples each need {clients * minimum}; "
            f"there are {rows}. Lower `clients` or `minimum`."
        )
