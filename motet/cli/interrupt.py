"""Ctrl-C between two rounds, never inside one: half a round is no state to go on from."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class Interrupt:
    """Notes the first Ctrl-C (or SIGTERM) as a wish to stop; the second one stops at once."""

    def __init__(self, promise: str) -> None:
        self.promise = promise
        self.asked = False
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():  # nobody else may
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        # Straight to the file: a handler may interrupt a print that is under way.
        os.write(2, f"\n{self.promise} Once more to stop at once.\n".encode())
