"""The type of a check, and the checks that each presupposes."""

from __future__ import annotations

from collections.abc import Callable

from motet.method import AnyMethod
from motet.testing._worlds import World

Promise = Callable[[AnyMethod, World], None]
_PRESUPPOSED: dict[Promise, tuple[Promise, ...]] = {}


def presupposes(*others: Promise) -> Callable[[Promise], Promise]:
    """Declare that a check says something only where others have passed.

    A float in a client's state, say, breaks nearly everything; it is reported once, by the check
    that is about it.
    """

    def declare(promise: Promise) -> Promise:
        _PRESUPPOSED[promise] = others
        return promise

    return declare


def presupposed_by(promise: Promise) -> tuple[Promise, ...]:
    """List what must have passed before."""
    return _PRESUPPOSED.get(promise, ())
