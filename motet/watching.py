"""Those who look on while methods run: a screen, lines, a log elsewhere.

A watcher hears what happens, and changes nothing. It overrides the methods that it cares about.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # these load torch, which a watcher does not need
    from motet.comparing.comparison import Look, Row
    from motet.federation import Round


class Watcher:
    """Hears of runs: each is one method (its label) with one seed."""

    def began(self, label: str, seed: int, rounds: int) -> None:
        """Hear that a run begins; a resumed one begins, too, and goes on with a later round."""

    def round_done(self, label: str, seed: int, done: Round, look: Look | None) -> None:
        """Hear of a round, with a look at the validation data where one was taken after it."""

    def finished(self, label: str, seed: int, row: Row) -> None:
        """Hear how a run ended."""

    def failed(self, label: str, seed: int, reason: str) -> None:
        """Hear that a run could not be finished."""

    def close(self) -> None:
        """Hear that nothing more comes, however it ended."""


class Several(Watcher):
    """Tells several watchers, in their order."""

    def __init__(self, watchers: Sequence[Watcher]) -> None:
        self.watchers = tuple(watchers)

    def began(self, label: str, seed: int, rounds: int) -> None:
        for watcher in self.watchers:
            watcher.began(label, seed, rounds)

    def round_done(self, label: str, seed: int, done: Round, look: Look | None) -> None:
        for watcher in self.watchers:
            watcher.round_done(label, seed, done, look)

    def finished(self, label: str, seed: int, row: Row) -> None:
        for watcher in self.watchers:
            watcher.finished(label, seed, row)

    def failed(self, label: str, seed: int, reason: str) -> None:
        for watcher in self.watchers:
            watcher.failed(label, seed, reason)

    def close(self) -> None:
        for watcher in self.watchers:
            watcher.close()
