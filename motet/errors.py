"""Everything Motet raises on purpose, in one tree.

MotetError
├── StructureError    names, shapes or trees that had to match do not
│   └── SelectorError     a selector that matches no parameter
├── RequestError      an unknown name, key or value in a call, a config or on the command line
├── DataError         client data that cannot be used as they are
├── CapabilityError   something the method, task or backend cannot do
├── StateError        a run directory or saved state that cannot be used
├── CohortError       a cohort that cannot be drawn
└── WireError         bytes that are not what they should be

A message says what was expected, what came, and how to mend it.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

FEW, MANY = 10, 60  # names in a sentence: so many of more than so many


class MotetError(Exception):
    """Base of every error that is the caller's to mend."""


class StructureError(MotetError, ValueError):
    """Two trees, or a tree and a model, that had to match do not."""


class SelectorError(StructureError):
    """A selector matches no parameter of the model."""


class RequestError(MotetError, ValueError):
    """A name, key or value that the caller asked for does not exist or does not fit."""


class DataError(MotetError, ValueError):
    """Client data that cannot be used as they are."""


class CapabilityError(MotetError):
    """The method, the task or the backend cannot do what was asked of it."""


class StateError(MotetError):
    """A run directory or saved state that cannot be used."""


class CohortError(MotetError, ValueError):
    """A cohort that cannot be drawn."""


class WireError(MotetError, ValueError):
    """Bytes that are not what they should be."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Say which known name is closest, and which exist.

    >>> nearest("fedpre", ["fedavg", "fedper", "local"])
    'did you mean "fedper"? known: fedavg, fedper, local'
    >>> nearest("x", [f"client {i}" for i in range(1000)])[-29:]
    'client 106, ... (1000 in all)'
    """
    names = sorted(known)
    close = get_close_matches(word, names, n=FEW, cutoff=0.5)
    hint = f'did you mean "{close[0]}"? ' if close else ""
    if len(names) <= MANY:
        return f"{hint}known: {', '.join(names)}"
    return f"{hint}known: {', '.join(close or names[:FEW])}, ... ({len(names)} in all)"


def one_line(error: BaseException) -> str:
    """Say what an error says, in its first line."""
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
