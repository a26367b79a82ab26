"""The ways in which a stack of clients can be trained. They differ in speed, and in rounding."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal

Mode = Literal["stack", "loop"]
NARROW = 0.75  # of the usual rows: a batch with so few real ones is worth a program of its own
WIDE = 1.5  # times the usual rows: as many as a batch is filled up to for a program that exists


@dataclass(frozen=True, kw_only=True)
class Execution:
    """How `fit` trains a stack of clients.

    Attributes:
        mode: "stack" steps all clients at once, "loop" one after another.
        traced: Whether steps are traced once and replayed, or run as they are written.
        widths: Rows per batch for which tracing pays: other batches come in too many shapes.
        channels_last: Whether "loop" lays images out with their channels last.
        separate_rows: Whether no row of a batch affects another one's, so that short batches need
            no filling, or may have more of it.
    """

    mode: Mode = "stack"
    traced: bool = False
    widths: frozenset[int] = frozenset()
    channels_last: bool = False
    separate_rows: bool = False

    def is_traced_for(self, rows: int) -> bool:
        """Return whether batches with this many rows are worth tracing."""
        return self.traced and rows in self.widths

    def width_for(self, rows: int, usual: int) -> int:
        """Say how many rows a batch with so many real ones gets, where batches usually have more.

        >>> traced = Execution(traced=True, widths=frozenset({8, 16, 32}), separate_rows=True)
        >>> [traced.width_for(rows, usual=32) for rows in (5, 9, 30)], traced.width_for(6, usual=6)
        ([8, 16, 32], 8)
        """
        if not self.separate_rows:
            return usual
        if not self.traced:
            return max(rows, 1)
        fitting = [width for width in self.widths if width >= rows]
        narrow = [width for width in fitting if width <= NARROW * usual]
        wide = [width for width in fitting if usual <= width <= WIDE * usual]
        return min(narrow or wide, default=usual)


_CURRENT: ContextVar[Execution] = ContextVar("execution")
_DEFAULT = Execution()


def current() -> Execution:
    """Say how the fits of this thread are to be carried out."""
    return _CURRENT.get(_DEFAULT)


@contextmanager
def executing(execution: Execution) -> Iterator[None]:
    """Carry out fits in this way."""
    token = _CURRENT.set(execution)
    try:
        yield
    finally:
        _CURRENT.reset(token)
