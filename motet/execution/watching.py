"""Watching the tensor operations that a function calls."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry


class Watching(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operation of this thread, below all transforms."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Say no: else the first operation would import torch's compiler, 70 MB in a second."""
        return False

    @abstractmethod
    def seen(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operation, and return its result."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.seen(func, args, kwargs or {})


class Counting(Watching):
    """Counts operations, and the arithmetic of products and convolutions.

    Attributes:
        operations: Calls of tensor operations.
        arithmetic: Multiplications and additions, as torch counts them.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations, self.arithmetic = 0, 0

    def seen(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = func(*args, **kwargs)
        self.operations += 1
        formula = flop_registry.get(func.overloadpacket)
        if formula is not None:
            self.arithmetic += formula(*args, **kwargs, out_val=result)
        return result
