"""What a backend does: carry the same pure functions to the clients, and bring the results back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from motet.method import RoundInfo
from motet.reduce import Reduce
from motet.setting import Point, Setting


class Outcome(NamedTuple):
    """What a round of local work has produced."""

    partial: Any  # of the method's reduction; the driver finishes it
    bytes_down: int  # over the whole cohort
    bytes_up: int
    gradients: float  # single-example gradient evaluations, over the whole cohort


class Backend(Protocol):
    """A transport for client work."""

    name: str
    setting: Setting

    def train(self, down: Any, info: RoundInfo) -> Outcome:
        """Run the cohort's local work, keep what stays at the clients, combine what is sent up."""
        ...

    def predict(
        self, down: Any, info: RoundInfo, inputs: Mapping[str, Tensor], point: Point
    ) -> Iterator[tuple[str, Tensor]]:
        """Yield each client's predictions on its own inputs; labels are never handed over."""
        ...

    def predictor(self, down: Any, info: RoundInfo, client: str, point: Point) -> Any:
        """Make one client's predictor."""
        ...


@contextmanager
def naming(clients: Sequence[str], info: RoundInfo) -> Iterator[None]:
    """Add to an error whose work it was; the traceback still ends where the fault is."""
    try:
        yield
    except Exception as error:
        error.add_note(f"in round {info.number + 1}, at client {', '.join(clients)}")
        raise


def combine(reduce: Reduce, parts: Sequence[Outcome]) -> Outcome:
    """Merge partial outcomes in the order given, so that arrival order cannot change a result."""
    partial = parts[0].partial
    for part in parts[1:]:
        partial = reduce.merge(partial, part.partial)
    return Outcome(
        partial=partial,
        bytes_down=sum(part.bytes_down for part in parts),
        bytes_up=sum(part.bytes_up for part in parts),
        gradients=sum(part.gradients for part in parts),
    )
