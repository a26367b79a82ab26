"""The result of one round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from motet._engine.evaluation import Evaluation
from motet._engine.run_spec import Point
from motet.errors import StateError

if TYPE_CHECKING:  # which makes rounds, and so imports this module
    from motet._engine.federation import Run


@dataclass(frozen=True)
class Round:
    """What one round did.

    Attributes:
        number: Counted from 1.
        cohort: Clients that were sampled.
        server: The server's state after the round.
        bytes_down: Bytes that were sent to clients.
        bytes_up: Bytes that clients sent.
        gradients: Gradients of single examples that were computed.
        seconds: Time that the round took.
        notes: What the method wants remembered, as values for JSON.
        replied: Clients whose uploads were combined.
        lost: Clients whose upload never arrived.
        rejected: Clients whose upload was refused, and why.
        diverged: Clients whose new private state was not finite, and why.
        failed: Why the server kept its old state although there were uploads; "" if it did not.
        run: The run, after this round.

    Example:
        >>> import motet
        >>> world = motet.testing.ragged()
        >>> rounds = motet.rounds(motet.FedAvg(), world.task, world.data, rounds=2, cohort=3)
        >>> [(done.number, len(done.replied)) for done in rounds]
        [(1, 3), (2, 3)]
    """

    number: int
    cohort: tuple[str, ...]
    server: Any
    bytes_down: int
    bytes_up: int
    gradients: float
    seconds: float
    notes: Mapping[str, Any]
    replied: tuple[str, ...]
    lost: tuple[str, ...]
    rejected: Mapping[str, str]
    diverged: Mapping[str, str]
    failed: str
    run: Run = field(repr=False)

    def evaluate(self, split: str = "val", point: Point | None = None) -> Evaluation:
        """Score the state after this round, while it is the current one.

        Args:
            split: "train", "val" or "test".
            point: Where in a round; None: as the method's authors report it (`Method.reported`).

        Returns:
            The scores, as `Run.evaluate` returns them.
        """
        if self.run.rounds_done != self.number:
            raise StateError(
                f"round {self.number} has passed: the run is at round {self.run.rounds_done}. "
                "Evaluate inside the loop."
            )
        return self.run.evaluate(split=split, point=point)
