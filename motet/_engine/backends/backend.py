"""The interface of backends, and the outcome of a round of local work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

from torch import Tensor

from motet._core.aggregation.mean import Reduce
from motet._engine.backends.plan.planning import ExecutionPlan
from motet._engine.run_spec import Point, RunSpec
from motet.method import RoundInfo

T = TypeVar("T")


class Outcome(NamedTuple):
    """What a round of local work has produced."""

    partial: Any  # of the method's reduction; the driver finishes it; None without replies
    bytes_down: int  # over the whole cohort
    bytes_up: int
    gradients: float  # single-example gradient evaluations, over the whole cohort
    replied: tuple[str, ...]  # clients whose uploads are in `partial`
    lost: tuple[str, ...] = ()  # clients whose upload never arrived
    rejected: Mapping[str, str] = MappingProxyType({})  # clients whose upload was refused, and why
    diverged: Mapping[str, str] = MappingProxyType({})  # who keeps the old private state, and why
    large: Mapping[str, float] = MappingProxyType({})  # suspiciously large uploads, and how large
    # Makes one client's part of `partial` again, where clients are strangers whose uploads may have
    # to be left out; and how many must be left. None: uploads are those of our own code.
    single: Callable[[str], Any] | None = None
    needed: int = 0


class Backend(Protocol):
    """A transport for client work."""

    name: ClassVar[str]

    @property
    def setting(self) -> RunSpec:
        """What is run."""
        ...

    @property
    def plan(self) -> ExecutionPlan | None:
        """How clients are stacked and spread over threads; None: one client after another."""
        ...

    @property
    def failures(self) -> Sequence[Exception]:
        """Errors of stacked work that was then done client by client."""
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
        rejected=_joined(part.rejected for part in merged),
        diverged=_joined(part.diverged for part in merged),
        large=_joined(part.large for part in merged),
    )


def _joined(parts: Iterable[Mapping[str, T]]) -> dict[str, T]:
    """Join what is known of different clients, in the order of their ids on every backend."""
    return dict(sorted(item for part in parts for item in part.items()))
