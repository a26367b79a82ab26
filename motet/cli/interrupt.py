"""Ctrl-C between two rounds, never inside one: half a round is no state to go on from."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Self

from motet.cli.terminal import write_now
from motet.closing import Closing


class Interrupt(Closing):
    """Notes the first Ctrl-C (or SIGTERM) as a wish to stop; the second one stops at once."""

    def __init__(self, promise: str, tell: Callable[[str], None] = write_now) -> None:
        self.promise, self.tell = promise, tell
        self.asked = False
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # nobody else may
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._note)
        return self

    def close(self) -> None:
        """Give the signals back to whoever had them."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        self.tell(f"{self.promise} Once more to stop at once.")
