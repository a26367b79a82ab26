"""Traced steps, kept for as long as their task lives."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from motet._core.transforms import is_wrapped
from motet._tracing.layouts import Layout, layout
from motet._tracing.pending import Deferring
from motet._tracing.support import trace, why_untraced

Step = Callable[..., Sequence[Tensor]]
log = logging.getLogger("motet")
MOST_PROGRAMS = 64  # of one task, at one or two megabytes each; no method needs more than a dozen
_making = threading.Lock()  # not one of each task's: tasks are copied
_reordering = threading.Lock()


@dataclass(frozen=True)
class Program:
    """A step for tensors of certain shapes: traced, or as it is written.

    Attributes:
        run: The step.
        overwrites: Whether it writes its results over its first arguments, so that the caller must
            own them.
        deferring: The same step for a walk that leaves large weights alone until its end.
    """

    run: Step
    overwrites: bool = False
    deferring: Deferring | None = None


class Programs:
    """Programs by what they compute and for which shapes; the least recently used ones go first.

    Attributes:
        token: What tells a task from another, in the identity of a step.
        most: How many are kept.
        constants: Tensors that steps read besides their arguments, and that never change.
    """

    def __init__(self, constants: Iterable[Tensor] = (), *, most: int = MOST_PROGRAMS) -> None:
        self.token, self.most, self.constants = object(), most, list(constants)
        self._made: OrderedDict[Hashable, Program | None] = OrderedDict()  # None: cannot be traced
        self._said: set[str] = set()

    def __len__(self) -> int:
        return len(self._made)

    def get(
        self,
        what: Hashable,
        step: Step,
        values: Sequence[Tensor],
        *,
        donated: int,
        data: int | None = None,
    ) -> Program:
        """Return the program of a step for such values; the step itself if it cannot be traced.

        Args:
            what: A name for what the step computes.
            step: A pure function of tensors.
            values: Tensors like those that it will get. They are not changed.
            donated: Number of leading arguments that the leading results replace.
            data: The place of the data among the arguments, if they are one stack of rows.
        """
        key = (what, *map(_layout_if_owned, values[:donated]), *map(layout, values[donated:]))
        if not self._has(key):
            with _making:
                if not self._has(key):  # no other thread has made it meanwhile
                    made = _traced(step, values, donated, data, self.constants)
                    self._keep(key, made)
                    return made or Program(step)
        return self._made.get(key) or Program(step)

    def say_once(self, sentence: str) -> None:
        """Log a sentence, unless it was logged before."""
        if sentence not in self._said:
            self._said.add(sentence)
            log.warning(sentence)

    def _has(self, key: Hashable) -> bool:
        with _reordering:
            if key in self._made:
                self._made.move_to_end(key)
                return True
        return False

    def _keep(self, key: Hashable, program: Program | None) -> None:
        with _reordering:
            self._made[key] = program
            full = len(self._made) > self.most
            if full:
                self._made.popitem(last=False)
        if full:
            self.say_once(
                f"a task needs more than {self.most} traced steps, so the least recently used are "
                "dropped and traced again when they are needed. If a number in the loss or in the "
                "optimizer changes from round to round, hand it over as a tensor: "
                "fit(..., given=(torch.tensor(value),))."
            )


def run_all(
    steps: Iterable[tuple[Program, Sequence[Tensor]]], state: list[Tensor], *, fresh: int
) -> list[Tensor]:
    """Take steps, each by its program and with its arguments behind the state.

    Args:
        steps: Programs, and what they read.
        state: What they change; it may be anybody's.
        fresh: From this place on it was just made (an optimizer's moments), so that it needs no
            copy unless somebody else holds its memory.
    """
    is_owned = False
    for program, rest in steps:
        if program.overwrites and not is_owned:
            state = [
                *owned(state[:fresh]),
                *(v if _is_free(v) else _copy(v) for v in state[fresh:]),
            ]
        state = list(program.run(*state, *rest))
        # Other steps may hand on what they were given, or one tensor in two places.
        is_owned, fresh = program.overwrites, len(state)
    return state


def owned(values: Sequence[Tensor]) -> list[Tensor]:
    """Copy values that a program may overwrite."""
    return [_copy(value) for value in values]


def _copy(value: Tensor) -> Tensor:
    return value.clone(memory_format=torch.preserve_format)


def _is_free(value: Tensor) -> bool:
    """Tell whether nothing else holds a tensor's memory, and no two numbers share a place in it."""
    if _holders is None or value.stride() != torch.empty_like(value, device="meta").stride():
        return False
    return _count_holders(value) == _holders


def _count_holders(value: Tensor) -> int | None:
    count = getattr(torch._C, "_storage_Use_Count", None)  # not every torch has it
    return None if count is None else int(count(value.untyped_storage()._cdata))


_holders = _count_holders(torch.zeros(1))  # of memory that one tensor has for itself


def traceable(values: Sequence[Tensor]) -> bool:
    """Tell whether values are plain tensors: inside a second transform they are not."""
    return not any(map(is_wrapped, values))


def _layout_if_owned(value: Tensor) -> Layout:
    """Say how a copy lies in memory: a value that is shared by all clients becomes a stack."""
    return layout(torch.empty_like(value, device="meta"))


def _traced(
    step: Step,
    values: Sequence[Tensor],
    donated: int,
    data: int | None,
    constants: Sequence[Tensor],
) -> Program | None:
    if why_untraced() is not None:  # the plan has said so
        return None
    try:
        given = [*owned(values[:donated]), *values[donated:]]
        traced = trace(step, given, donated=donated, data=data, constants=constants)
        # Once now: torch's interpreter refuses some operations only when they run.
        traced.run(*owned(values[:donated]), *values[donated:])
        return Program(traced.run, overwrites=True, deferring=traced.deferring)
    except Exception as reason:  # whatever it is, the step as it is written still works
        why = str(reason).strip().splitlines()
        log.warning(
            "a step cannot be traced, so it runs as it is written, at its own speed: %s: %s",
            type(reason).__name__,
            why[0] if why else "no reason given",
        )
        return None
