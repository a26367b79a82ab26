"""Ctrl-C stops a run between two rounds, never inside one: half a round cannot be resumed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Self

from motet._cli.stopping import SIGNALS, stop_when_safe
from motet._cli.terminal import write_now


class Interrupt:
    """Notes the first Ctrl-C (or SIGTERM) as a wish to stop; the second one stops at once."""

    def __init__(self, promise: str, tell: Callable[[str], None] = write_now) -> None:
        self.promise, self.tell = promise, tell
        self.asked = 0  # the number of the signal
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # Python allows no other thread
            for number in SIGNALS:
                self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            stop_when_safe(number, frame)
            return
        self.asked = number
        self.tell(f"{self.promise} Once more to stop at once.")
