"""Traced steps, kept for as long as their task lives."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from motet.execution.deferring import Deferring, deferring
from motet.execution.graphs import simplified
from motet.execution.recording import Layout, layout

Step = Callable[..., Sequence[Tensor]]
log = logging.getLogger("motet")
_making = threading.Lock()  # not one of each task's: tasks are copied


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
    """Programs by what they compute and for which shapes."""

    def __init__(self) -> None:
        self._made: dict[Hashable, Program] = {}

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
            donated: The first so many arguments are replaced by the first results.
            data: The place of the data among the arguments, if they are one stack of rows.
        """
        key = (what, *map(_layout_if_owned, values[:donated]), *map(layout, values[donated:]))
        if key not in self._made:
            with _making:
                if key not in self._made:  # nobody has made it while this thread waited
                    self._made[key] = _traced_or_plain(step, values, donated, data)
        return self._made[key]


def owned(values: Sequence[Tensor]) -> list[Tensor]:
    """Copy values that a program may overwrite."""
    return [value.clone(memory_format=torch.preserve_format) for value in values]


def traceable(values: Sequence[Tensor]) -> bool:
    """Tell whether values are plain tensors: inside a second transform they are not."""
    wrapped: Callable[[Any], bool] = torch._C._functorch.is_functorch_wrapped_tensor
    return not any(wrapped(value) for value in values)


def _layout_if_owned(value: Tensor) -> Layout:
    """Say how a copy lies in memory: a value that is shared by all clients becomes a stack."""
    return layout(torch.empty_like(value, device="meta"))


def _traced_or_plain(
    step: Step, values: Sequence[Tensor], donated: int, data: int | None
) -> Program:
    try:
        return _traced(step, [*owned(values[:donated]), *values[donated:]], donated, data)
    except Exception as reason:  # whatever it is, the step as it is written still works
        why = str(reason).strip().splitlines()
        log.warning(
            "a step cannot be traced, so it runs as it is written, at its own speed: %s: %s",
            type(reason).__name__,
            why[0] if why else "no reason given",
        )
        return Program(step)


def _traced(step: Step, values: Sequence[Tensor], donated: int, data: int | None) -> Program:
    module = simplified(step, values, donated)
    later = None if data is None else deferring(module, donated=donated, data=data)
    return Program(module.forward, overwrites=True, deferring=later)
