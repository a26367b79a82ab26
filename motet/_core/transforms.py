"""Names that not every release of torch has, each with a replacement.

`torch.func` has no public question for two things that a training loop must know: whether the
values of a tensor can be read, and whether a transform is running. A release of torch that moves
one of these names must cost speed at most, never a run, so the eager path reads them only here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def is_wrapped(tensor: Tensor) -> bool:
    """Tell whether a transform has wrapped a tensor, so that its values cannot be read."""
    unwrap = getattr(torch.func, "debug_unwrap", None)  # public, but only in newer releases
    if unwrap is not None:
        return unwrap(tensor, recurse=False) is not tensor
    wrapped: bool = torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    return wrapped


def is_recording() -> bool:
    """Tell whether operations are recorded or exported, for other values; yes if unknown."""
    try:
        from torch.utils._python_dispatch import _get_current_dispatch_mode as observing
    except ImportError:
        return True
    return is_exporting() or observing() is not None


def is_transforming() -> bool:
    """Tell whether a transform runs in this thread; yes if torch does not say.

    Code for the inside of a transform also works outside of one, only slower.
    """
    active: Callable[[], bool] | None = getattr(torch._C, "_are_functorch_transforms_active", None)
    return active is None or active()


def is_exporting() -> bool:
    """Tell whether a network is being exported."""
    exporting: Callable[[], bool] = getattr(
        torch.compiler,
        "is_exporting",
        torch.compiler.is_compiling,  # before 2.7, which counts an export as well
    )
    return exporting()


def load_grad_parts() -> tuple[Callable[..., Any], ...] | None:
    """Load the steps that `torch.func.grad` consists of; None if this torch has other ones.

    Returns:
        A context that opens a level of differentiation, a function that wraps a tensor for a
        level, and one that unwraps a tree from it.
    """
    try:
        from torch._C._functorch import _wrap_for_grad
        from torch._functorch.eager_transforms import (
            _create_differentiable,
            _undo_create_differentiable,
            grad_increment_nesting,
        )
    except ImportError:
        return None

    def wrap(leaf: Tensor, level: int) -> Any:
        return _create_differentiable(_wrap_for_grad(leaf, level), level)

    return grad_increment_nesting, wrap, _undo_create_differentiable
