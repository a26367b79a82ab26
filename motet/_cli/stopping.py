"""Signals that stop the command, handled from its start.

Only the standard library is imported here: everything else takes longer to load than a user who
presses Ctrl-C waits.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)  # batch systems send the second one
RETRY_S = 0.02


class StoppedError(KeyboardInterrupt):
    """A signal asked the command to stop."""

    def __init__(self, number: int = signal.SIGINT) -> None:
        super().__init__()
        self.number = number


NOTHING_SAVED = "nothing was saved. Run the same command again."


def listen() -> None:
    """Raise `StoppedError` on a signal, unless the parent process set it to be ignored."""
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, stop_when_safe)


def stop_listening() -> None:
    """Let the next signal end the process: there is nothing left to clean up."""
    for number in SIGNALS:
        if signal.getsignal(number) is stop_when_safe:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def noting(standing: str) -> Iterator[None]:
    """Add to a stop what is saved, and how to go on; the innermost note counts."""
    try:
        yield
    except KeyboardInterrupt as stop:
        if not hasattr(stop, "__notes__"):
            stop.add_note(standing)
        raise


def sentence(stop: BaseException) -> str:
    """Say what stopped the command, what is saved, and how to go on."""
    name = signal.Signals(_number(stop)).name
    return "; ".join([f"stopped by {name}", *getattr(stop, "__notes__", [NOTHING_SAVED])])


def exit_code(stop: BaseException) -> int:
    """Return the code that shells expect of a process that a signal has ended."""
    return 128 + _number(stop)


def _number(stop: BaseException) -> int:
    return stop.number if isinstance(stop, StoppedError) else signal.SIGINT


def stop_when_safe(number: int, frame: FrameType | None) -> None:
    """Raise `StoppedError`, unless a module is being loaded: then when that is over.

    Compiled modules may call Python while they are loaded, and abort the process when it raises.
    """
    if not (_is_importing(frame) and hasattr(signal, "setitimer")):
        raise StoppedError(number)
    signal.signal(signal.SIGALRM, lambda _, later: stop_when_safe(number, later))
    signal.setitimer(signal.ITIMER_REAL, RETRY_S)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False
