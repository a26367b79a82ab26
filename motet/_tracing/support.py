"""The one door to tracing: whether steps can be traced with this torch, and if not, why.

The passes look for patterns of torch's own operations in a recorded step, and torch may change with
every release what a step consists of. Tracing only saves time, so with a torch that the passes were
not tested with, steps run as they are written. Nothing outside of this module imports the passes:
a name that a release of torch does not have is found here, and not when `motet` is imported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from motet._tracing.pending import Deferring

# The oldest and the newest minor release of torch whose steps the tests of tracing passed with
# (scripts/test-torch). Between them, and in case of doubt, the self-test decides.
OLDEST, NEWEST = (2, 6), (2, 15)
Step = Callable[..., Sequence[Tensor]]


class Traced(NamedTuple):
    """A step as the passes left it; the second one leaves some weights alone until the end."""

    run: Step
    deferring: Deferring | None


class Counts(NamedTuple):
    """The work of a call.

    Attributes:
        operations: Calls of tensor operations.
        arithmetic: Multiplications and additions in products and convolutions.
    """

    operations: int
    arithmetic: int


def why_untraced(*, self_test: bool = True) -> str | None:
    """Give the reason why steps cannot be traced with this torch, as a clause; None if they can.

    Args:
        self_test: Whether to trace two small steps and compare; otherwise only the version counts.
    """
    return _unknown_release() or (_failed_self_test() if self_test else None)


def trace(
    step: Step,
    values: Sequence[Tensor],
    *,
    donated: int,
    data: int | None = None,
    constants: Sequence[Tensor] = (),
) -> Traced:
    """Record a step and run all passes; see `motet._tracing.programs` for the arguments."""
    from motet._tracing.deferring import deferring
    from motet._tracing.graphs import simplified
    from motet._tracing.scripts import scripted

    module = simplified(step, values, donated, constants)
    later = None if data is None else deferring(module, donated=donated, data=data)
    return Traced(scripted(module), later)


def count(work: Callable[[], object]) -> Counts:
    """Count the operations of a call; zeros with a torch whose operations cannot be observed."""
    try:
        from motet._tracing.op_counter import OperationCounter
    except ImportError:  # plans then go by what they know without counting
        return Counts(0, 0)
    with torch.no_grad(), OperationCounter() as counter:
        work()
    return Counts(counter.operations, counter.arithmetic)


def memory_read(work: Callable[[], object]) -> set[int] | None:
    """List the memory that the operations of a call read; None if they cannot be observed."""
    try:
        from motet._tracing.op_counter import MemoryObserver
    except ImportError:
        return None
    observer = MemoryObserver()
    with observer:
        work()
    return observer.read


def memory_written(work: Callable[[], object]) -> set[int] | None:
    """List the memory that the operations of a call write into; None if they cannot be observed."""
    try:
        from motet._tracing.op_counter import WriteObserver
    except ImportError:
        return None
    observer = WriteObserver()
    with observer:
        work()
    return observer.written


def convolutions(work: Callable[[], object]) -> set[tuple[tuple[int, ...], tuple[int, ...]]] | None:
    """List weights' shapes and strides of a call's convolutions; None if they cannot be seen."""
    try:
        from motet._tracing.op_counter import ConvolutionObserver
    except ImportError:
        return None
    observer = ConvolutionObserver()
    with torch.no_grad(), observer:
        work()
    return observer.seen


def memory_of(value: Tensor) -> int:
    """Return where a tensor's memory begins, whatever part of it the tensor shows."""
    return value.untyped_storage().data_ptr()


def _unknown_release() -> str | None:
    numbers = re.match(r"(\d+)\.(\d+)", torch.__version__)
    if numbers and OLDEST <= tuple(map(int, numbers.groups())) <= NEWEST:
        return None
    oldest, newest = (".".join(map(str, release)) for release in (OLDEST, NEWEST))
    return (
        f"tracing is tested with torch {oldest} to {newest}, and this is torch {torch.__version__}"
    )


@cache  # a tenth of a second, once per process
def _failed_self_test() -> str | None:
    """Trace two small steps and compare them with the steps themselves."""
    try:
        from motet._tracing.self_test import disagreement

        found = disagreement(trace)
    except Exception as reason:  # whatever it is, no other step can be trusted either
        what = str(reason).strip().splitlines()
        found = f"{type(reason).__name__}: {what[0] if what else 'no message'}"
    if found is None:
        return None
    return f"a test step could not be traced correctly with torch {torch.__version__} ({found})"
