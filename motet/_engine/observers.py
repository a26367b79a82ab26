"""Watchers of runs: a live table, lines of JSON, TensorBoard, MLflow.

A watcher receives what happens and changes nothing. It overrides the methods that it needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # these load torch, which a watcher does not need
    from motet._engine.federation import Round
    from motet._engine.results import Look, Row


class Watcher:
    """Receives the events of runs; each run is one method (its label) with one seed.

    Example:
        >>> import motet
        >>> class Progress(motet.tracking.Watcher):
        ...     def began(self, label, seed, rounds):
        ...         print(f"{label}, seed {seed}: {rounds} rounds")
        >>> Progress().began("fedavg", 0, 10)  # `motet.compare(..., watcher=Progress())` calls it
        fedavg, seed 0: 10 rounds
    """

    def began(self, label: str, seed: int, rounds: int) -> None:
        """Called when a run starts, and when it is resumed.

        Args:
            label: Label of the method.
            seed: Seed of the run.
            rounds: Number of planned rounds.
        """

    def round_done(self, label: str, seed: int, done: Round, look: Look | None) -> None:
        """Called after every round.

        Args:
            label: Label of the method.
            seed: Seed of the run.
            done: What the round did.
            look: Validation scores, if they were computed after this round.
        """

    def finished(self, label: str, seed: int, row: Row) -> None:
        """Called with the result of a run.

        Args:
            label: Label of the method.
            seed: Seed of the run.
            row: Its scores and costs.
        """

    def failed(self, label: str, seed: int, reason: str) -> None:
        """Called when a run failed.

        Args:
            label: Label of the method.
            seed: Seed of the run.
            reason: Why, in a sentence.
        """

    def close(self) -> None:
        """Release resources; called once at the end, also after an error."""


class Several(Watcher):
    """Tells several watchers, in their order.

    Args:
        watchers: Watchers, told in this order.

    Example:
        >>> import motet
        >>> class Printer(motet.tracking.Watcher):
        ...     def began(self, label, seed, rounds):
        ...         print(label, rounds)
        >>> Several([Printer(), Printer()]).began("fedavg", 0, 10)
        fedavg 10
        fedavg 10
    """

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
