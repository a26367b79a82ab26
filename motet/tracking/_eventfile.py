"""TensorBoard event files, written synchronously.

TensorBoard's own writer uses a thread: the caller cannot catch its errors, and queued events are
lost when the program stops. The format and the messages are TensorBoard's own.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from motet.errors import CapabilityError


def messages() -> Any:
    """Import the module that builds TensorBoard's messages, or raise if it is not installed."""
    try:
        from torch.utils.tensorboard import summary
    except ImportError as missing:
        raise CapabilityError(
            "TensorBoard's event files need the package tensorboard, which is not installed. "
            'Install it with `pip install "motet[tracking]"`.'
        ) from missing
    return summary


class EventFile:
    """One event file in a run's directory; TensorBoard reads all of them, ordered by name."""

    def __init__(self, directory: Path, *, restarts_at: int | None = None) -> None:
        from tensorboard.compat.proto.event_pb2 import SessionLog
        from tensorboard.summary.writer.record_writer import RecordWriter

        directory.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time.time():017.6f}.{os.getpid()}.motet"
        self.records = RecordWriter((directory / name).open("wb"))
        self._event(file_version="brain.Event:2")
        if restarts_at is not None:  # invalidates what an earlier run wrote from this step on
            self._event(restarts_at, session_log=SessionLog(status=SessionLog.START))

    def scalars(self, values: dict[str, float], step: int) -> None:
        """Add points to curves."""
        for name, value in values.items():
            self.add(messages().scalar(name, value), step)
        self.records.flush()

    def text(self, name: str, text: str) -> None:
        """Add text."""
        self.add(messages().text(name, text))

    def add(self, message: Any, step: int = 0) -> None:
        """Add a message."""
        self._event(step, summary=message)

    def close(self) -> None:
        """Close the file."""
        self.records.close()

    def _event(self, step: int = 0, **what: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        event = Event(wall_time=time.time(), step=step, **what)
        self.records.write(event.SerializeToString())
