"""What a backend does: carry the same pure functions to the clients, and bring the results back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Protocol

from torch import Tensor

from motet.method import RoundInfo
from motet.reduce import Reduce
from motet.setting import Point, Setting


class Outcome(NamedTuple):
    """What a round of local work has produced."""

    partial: Any  # of the method's reduction; the driver finishes it; None if nobody replied
    bytes_down: int  # over the whole cohort
    bytes_up: int
    gradients: float  # single-example gradient evaluations, over the whole cohort
    replied: tuple[str, ...]  # whose uploads are in `partial`
    lost: tuple[str, ...] = ()  # who worked, and was not heard
    rejected: Mapping[str, str] = MappingProxyType({})  # whose upload was refused, and why


class Backend(Protocol):
    """A transport for client work."""

    name: ClassVar[str]

    @property
    def setting(self) -> Setting:
        """What is run."""
        ...

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


def combine(reduce: Reduce, parts: Iterable[Outcome]) -> Outcome:
    """Merge partial outcomes in the order given, so that arrival order cannot change a result.

    Each is merged as it comes, so that there are never many of them in memory.
    """
    total, merged = None, []
    for part in parts:
        if part.partial is not None:
            total = part.partial if total is None else reduce.merge(total, part.partial)
        merged.append(part._replace(partial=None))
    return Outcome(
        partial=total,
        bytes_down=sum(part.bytes_down for part in merged),
        bytes_up=sum(part.bytes_up for part in merged),
        gradients=sum(part.gradients for part in merged),
        replied=tuple(sorted(client for part in merged for client in part.replied)),
        lost=tuple(sorted(client for part in merged for client in part.lost)),
        rejected={client: part.rejected[client] for part in merged for client in part.rejected},
    )
