"""The ways in which a stack of clients can be trained. They differ in speed, and in rounding."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal

Mode = Literal["stack", "loop"]


@dataclass(frozen=True, kw_only=True)
class Execution:
    """How `fit` trains a stack of clients.

    Attributes:
        mode: "stack" steps all clients at once, "loop" one after another.
        traced: Whether steps are traced once and replayed, or run as they are written.
        widths: Rows per batch for which tracing pays: other batches come in too many shapes.
        channels_last: Whether "loop" lays images out with their channels last.
    """

    mode: Mode = "stack"
    traced: bool = False
    widths: frozenset[int] = frozenset()
    channels_last: bool = False

    def is_traced_for(self, rows: int) -> bool:
        """Return whether batches with this many rows are worth tracing."""
        return self.traced and rows in self.widths


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
