"""Tracing needs the stage for itself: torch's tracer patches `nn.Module` for every thread.

A thread that runs a network does so inside `running()`. A thread that traces steps aside, waits
until nobody else runs a network, and traces; whoever wants to begin meanwhile waits.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_changed = threading.Condition()
_mine = threading.local()  # how deep this thread is inside `running`
_running = 0  # threads that run networks
_tracing = 0  # threads that trace, or wait to


@contextmanager
def running() -> Iterator[None]:
    """Run networks in this thread, while nobody traces."""
    if _depth() == 0:
        _begin()
    _mine.depth = _depth() + 1
    try:
        yield
    finally:
        _mine.depth -= 1
        if _depth() == 0:
            _end()


@contextmanager
def tracing() -> Iterator[None]:
    """Trace in this thread, while nobody else traces or runs a network."""
    global _tracing  # noqa: PLW0603 - the stage is one for the whole process
    inside = _depth() > 0
    with _changed:
        _tracing += 1
    if inside:
        _end()
    try:
        with _changed:
            _changed.wait_for(lambda: _running == 0)
            yield
    finally:
        with _changed:
            _tracing -= 1
            _changed.notify_all()
        if inside:
            _begin()


def _begin() -> None:
    global _running  # noqa: PLW0603
    with _changed:
        _changed.wait_for(lambda: _tracing == 0)
        _running += 1


def _end() -> None:
    global _running  # noqa: PLW0603
    with _changed:
        _running -= 1
        _changed.notify_all()


def _depth() -> int:
    return getattr(_mine, "depth", 0)
