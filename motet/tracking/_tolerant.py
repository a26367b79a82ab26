"""A wrapper that keeps errors of a watcher from stopping a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from motet._engine.observers import Watcher
from motet.errors import one_line

if TYPE_CHECKING:
    from motet._engine.federation import Round
    from motet._engine.results import Look, Row


class Tolerant(Watcher):
    """Forwards to a watcher until it raises; then warns once and stops forwarding.

    Args:
        watcher: The watcher that may fail.
        name: What to call it in the warning.
        warn: Receives the warning.

    Example:
        >>> from motet.tracking import Watcher
        >>> class Broken(Watcher):
        ...     def close(self):
        ...         raise OSError("disk full")
        >>> Tolerant(Broken(), "TensorBoard", print).close()
        TensorBoard could not be written and is disabled: disk full.
    """

    def __init__(self, watcher: Watcher, name: str, warn: Callable[[str], None]) -> None:
        self.watcher, self.name, self.warn = watcher, name, warn
        self.gave_up = False

    def began(self, label: str, seed: int, rounds: int) -> None:
        self._try(lambda: self.watcher.began(label, seed, rounds))

    def round_done(self, label: str, seed: int, done: Round, look: Look | None) -> None:
        self._try(lambda: self.watcher.round_done(label, seed, done, look))

    def finished(self, label: str, seed: int, row: Row) -> None:
        self._try(lambda: self.watcher.finished(label, seed, row))

    def failed(self, label: str, seed: int, reason: str) -> None:
        self._try(lambda: self.watcher.failed(label, seed, reason))

    def close(self) -> None:
        self._try(self.watcher.close)

    def _try(self, call: Callable[[], None]) -> None:
        if self.gave_up:
            return
        try:
            call()
        except Exception as error:
            self.gave_up = True
            why = one_line(error)
            self.warn(f"{self.name} could not be written and is disabled: {why}.")
