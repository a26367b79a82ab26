"""Everything Motet raises on purpose, in one tree.

MotetError
├── StructureError    names, shapes or trees that had to match do not
│   ├── SelectorError     a selector that matches no parameter
│   └── CaptureError      a loss that captures a tensor instead of taking it as an argument
├── RequestError      an unknown name, key or value in a call, a config or on the command line
├── DataError         client data that cannot be used as they are
├── CapabilityError   something the method, task or backend cannot do
│   └── WorkError         a client's work that fails with this network and these data
├── StateError        a run directory or saved state that cannot be used
├── CohortError       a cohort that cannot be drawn
└── WireError         bytes that are not what they should be

A message says what was expected, what was found, and how to fix it.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = [
    "CapabilityError",
    "CaptureError",
    "CohortError",
    "DataError",
    "DivergenceWarning",
    "MotetError",
    "RequestError",
    "SelectorError",
    "StateError",
    "StructureError",
    "WireError",
    "WorkError",
]


NOT_FINITE = "holds a NaN or an infinity"  # how every such reason ends
FEW, MANY = 10, 60  # names in a sentence: show FEW of them if there are more than MANY


class MotetError(Exception):
    """Base of every error that the caller can fix."""


class StructureError(MotetError, ValueError):
    """Two trees, or a tree and a model, that had to match do not."""


class SelectorError(StructureError):
    """A selector matches no parameter of the model."""


class CaptureError(StructureError):
    """A loss holds a tensor, or something else that cannot be compared by value."""


class RequestError(MotetError, ValueError):
    """A name, key or value that the caller asked for does not exist or does not fit."""


class DataError(MotetError, ValueError):
    """Client data that cannot be used as they are."""


class CapabilityError(MotetError):
    """The method, the task or the backend cannot do what was asked of it."""


class WorkError(CapabilityError):
    """A client cannot be trained or served: tried out before the first round."""


class StateError(MotetError):
    """A run directory or saved state that cannot be used."""


class CohortError(MotetError, ValueError):
    """A cohort that cannot be drawn."""


class WireError(MotetError, ValueError):
    """Bytes that are not what they should be."""


class DivergenceWarning(UserWarning):
    """Training has diverged: some numbers of a run became NaN or infinite."""


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


def what_happened(error: BaseException) -> str:
    """Say what kind of error it is and what it says, in one line.

    >>> what_happened(ZeroDivisionError("division by zero"))
    'ZeroDivisionError: division by zero'
    """
    said, kind = one_line(error), type(error).__name__
    return said if isinstance(error, MotetError) or said == kind else f"{kind}: {said}"


def one_line(error: BaseException) -> str:
    """Say what an error says, in its first line."""
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
