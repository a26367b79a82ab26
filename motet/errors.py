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

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
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
    """Base of every error that the caller can fix.

    Args:
        args: The message.
        option: What the error is about: an argument ("lr"), or a key of a config ("method.lr").

    Example:
        >>> import motet
        >>> try:
        ...     motet.FedProx(mu=-1.0)
        ... except motet.errors.MotetError as reason:
        ...     print(f"{type(reason).__name__}: {reason}")
        RequestError: mu= must be 0 or more; got -1.0.
    """

    def __init__(self, *args: object, option: str | None = None) -> None:
        super().__init__(*args)
        self.option = option

    def __str__(self) -> str:
        message = super().__str__()
        key = self.option if self.option is not None and "." in self.option else None
        return message if key is None else named(message, key, key)


class StructureError(MotetError, ValueError):
    """Two trees, or a tree and a model, that had to match do not.

    Example:
        >>> import motet
        >>> from torch import nn
        >>> world = motet.testing.ragged()
        >>> task = motet.Task(build=lambda: nn.Linear(7, 3))
        >>> motet.run(motet.FedAvg(), task, world.data, rounds=1)
        Traceback (most recent call last):
            ...
        motet.errors.StructureError: the network does not accept the data of client "many", ...
    """


class SelectorError(StructureError):
    """A selector matches no parameter of the model.

    Example:
        >>> import motet
        >>> world = motet.testing.ragged()
        >>> motet.run(motet.FedPer(personal=("haed",)), world.task, world.data, rounds=1)
        Traceback (most recent call last):
            ...
        motet.errors.SelectorError: no parameter is in a module called "haed"; did you mean ...
    """


class CaptureError(StructureError):
    """A loss holds a tensor, or something else that cannot be compared by value.

    Example:
        >>> import motet
        >>> import torch
        >>> def anchored(task, anchor):
        ...     return lambda state, batch: task.loss(state, batch) + anchor.sum()
        >>> task = motet.testing.ragged().task
        >>> state = task.init(motet.Key(0))
        >>> motet.fit(task, state, None, motet.Sgd(lr=0.1), loss=anchored(task, torch.zeros(1)))
        Traceback (most recent call last):
            ...
        motet.errors.CaptureError: the loss in ... captures `anchor`, a tensor of shape (1,). ...
    """


class RequestError(MotetError, ValueError):
    """A name, key or value that the caller asked for does not exist or does not fit.

    Example:
        >>> import motet
        >>> motet.FedAvg(epochs=1, steps=10)
        Traceback (most recent call last):
            ...
        motet.errors.RequestError: give epochs= or steps=, not both; got epochs=1 and steps=10.
    """


class DataError(MotetError, ValueError):
    """Client data that cannot be used as they are.

    Example:
        >>> import motet
        >>> import numpy as np
        >>> motet.data.from_arrays({"basel": (np.zeros((2, 1)), np.zeros(3))})
        Traceback (most recent call last):
            ...
        motet.errors.DataError: client "basel" (train) has 2 inputs but 3 targets; they must ...
    """


class CapabilityError(MotetError):
    """The method, the task or the backend cannot do what was asked of it.

    Example:
        >>> import motet
        >>> world = motet.testing.ragged()
        >>> run = motet.run(motet.FedAvg(), world.task, world.data, rounds=0, backend="serial")
        >>> motet.analysis.routing_shares(run)
        Traceback (most recent call last):
            ...
        motet.errors.CapabilityError: fedavg does not route instances; use a run of flow.
    """


class WorkError(CapabilityError):
    """A client cannot be trained or served: tried out before the first round.

    Example:
        >>> import motet
        >>> import torch
        >>> class Branches(motet.FedAvg):
        ...     def client_update(self, down, client, data, task):
        ...         raise ValueError("not for this network")
        >>> world = motet.testing.ragged()
        >>> motet.run(Branches(), world.task, world.data, rounds=1)
        Traceback (most recent call last):
            ...
        motet.errors.WorkError: fedavg does not work with this network and these data: training ...
    """


class StateError(MotetError):
    """A run directory or saved state that cannot be used.

    Example:
        >>> from pathlib import Path
        >>> import motet
        >>> motet.report.read_all([Path("nowhere")])
        Traceback (most recent call last):
            ...
        motet.errors.StateError: nowhere holds neither a run nor a comparison: config.toml is ...
    """


class CohortError(MotetError, ValueError):
    """A cohort that cannot be drawn.

    Example:
        >>> import motet
        >>> world = motet.testing.ragged()
        >>> motet.run(motet.FedAvg(), world.task, world.data, rounds=1, cohort=100)
        Traceback (most recent call last):
            ...
        motet.errors.CohortError: cohort=100 is a count, and there are 6 clients; use 1 to 6, ...
    """


class WireError(MotetError, ValueError):
    """Bytes that are not what they should be.

    Example:
        >>> error = WireError("expected 16 bytes, got 12.")
        >>> isinstance(error, MotetError), isinstance(error, ValueError)
        (True, True)
    """


class DivergenceWarning(UserWarning):
    """Training has diverged: some numbers of a run became NaN or infinite.

    Example:
        >>> import warnings
        >>> import motet
        >>> import numpy as np
        >>> x = np.array([[1e38, 0, 0, 0], [-1e38, 0, 0, 0]], np.float32)
        >>> data = motet.data.from_arrays({"basel": (x, np.array([0, 1]))}, classes=3)
        >>> task = motet.testing.linear().task
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     run = motet.run(motet.Local(), task, data, rounds=3, backend="serial")
        >>> [warning.category.__name__ for warning in caught]
        ['DivergenceWarning']
    """


@contextmanager
def under(section: str) -> Iterator[None]:
    """Let errors about an argument name the key of a config instead.

    >>> with under("method"):
    ...     raise RequestError("Sgd(lr=) must be 0 or more; got -1.", option="lr")
    Traceback (most recent call last):
        ...
    motet.errors.RequestError: method.lr must be 0 or more; got -1.
    """
    try:
        yield
    except MotetError as error:
        if error.option is not None and "." not in error.option:
            error.option = f"{section}.{error.option}"
        raise


def named(message: str, option: str, name: str) -> str:
    """Call the option that a message is about by another name.

    >>> named("mu= must be 0 or more; got -1.", "mu", "--mu")
    '--mu must be 0 or more; got -1.'
    >>> named("run.cohort=7 is a count", "run.cohort", "--cohort")
    '--cohort=7 is a count'
    >>> named('no model is called "x"', "model.name", "--model")
    '--model: no model is called "x"'
    """
    last = re.escape(option.rpartition(".")[2])
    begins = rf"(?:\w+\()?(?:[\w.\[\]-]+\.)?{last}(?:\[\d+\])?(?:=\)|=(?= )|(?!\w))"
    found = re.match(begins, message)
    return f"{name}: {message}" if found is None else f"{name}{message[found.end() :]}"


def nearest(word: str, known: Iterable[str]) -> str:
    """Say which known name is closest, and which exist.

    >>> nearest("fedpre", ["fedavg", "fedper", "local"])
    'did you mean "fedper"? known: fedavg, fedper, local'
    >>> nearest("x", [f"client {i}" for i in range(1000)])[-29:]
    'client 106, ... (1000 in all)'
    """
    names = sorted(set(known))
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
