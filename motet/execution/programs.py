"""Traced steps, kept for as long as their task lives."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

from motet.execution.graphs import traced

Step = Callable[..., Sequence[Tensor]]
log = logging.getLogger("motet")
_making = threading.Lock()  # not one of each task's: tasks are copied


class Programs:
    """Programs by what they compute and for which shapes."""

    def __init__(self) -> None:
        self._made: dict[Hashable, Step] = {}

    def __len__(self) -> int:
        return len(self._made)

    def get(self, what: Hashable, step: Step, values: Sequence[Tensor], *, donated: int) -> Step:
        """Return the program of a step for such values; the step itself if it cannot be traced."""
        key = (what, tuple((v.shape, v.stride(), v.dtype) for v in values))
        if key not in self._made:
            with _making:
                if key not in self._made:  # nobody has made it while this thread waited
                    self._made[key] = _traced_or_plain(step, values, donated)
        return self._made[key]


def traceable(values: Sequence[Tensor]) -> bool:
    """Tell whether values are plain tensors: inside a second transform they are not."""
    wrapped: Callable[[Any], bool] = torch._C._functorch.is_functorch_wrapped_tensor
    return not any(wrapped(value) for value in values)


def _traced_or_plain(step: Step, values: Sequence[Tensor], donated: int) -> Step:
    try:
        return traced(step, values, donated=donated)
    except Exception as reason:  # whatever it is, the step as it is written still works
        why = str(reason).strip().splitlines()
        log.warning(
            "a step cannot be traced, so it runs as it is written, at its own speed: %s: %s",
            type(reason).__name__,
            why[0] if why else "no reason given",
        )
        return step
