"""Damaged files: errors that name the file instead of a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from motet.errors import MotetError, StateError

# What using values of the wrong kind raises; text nested too deep is a RecursionError.
SIGNS = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    IndexError,
    ArithmeticError,
    RecursionError,
)


@contextmanager
def reading(path: Any, what: str) -> Iterator[None]:
    """Refuse a file whose contents turn out not to be what they should, wherever they are used."""
    try:
        yield
    except MotetError:
        raise
    except SIGNS as reason:
        shown = repr(reason)[:200]  # it may quote the file
        raise StateError(f"{path} is no {what} that this version can read: {shown}.") from reason
