"""The tensor operations that a function calls: observed one by one, or counted."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

# A private module, but the documented way to see operations; without it `motet._tracing.support`
# turns tracing off.
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry


class OperationObserver(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operation of this thread, below all transforms."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Say no: otherwise the first operation imports torch's compiler, 70 MB and a second."""
        return False

    @abstractmethod
    def observe(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operation, and return its result."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.observe(func, args, kwargs or {})


class OperationCounter(OperationObserver):
    """Counts operations, and the arithmetic of products and convolutions.

    Attributes:
        operations: Calls of tensor operations.
        arithmetic: Multiplications and additions, as torch counts them.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations, self.arithmetic = 0, 0

    def observe(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = func(*args, **kwargs)
        self.operations += 1
        formula = flop_registry.get(func.overloadpacket)
        if formula is not None:
            self.arithmetic += formula(*args, **kwargs, out_val=result)
        return result


class MemoryObserver(OperationObserver):
    """Remembers whose memory operations have read."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.read: set[int] = set()

    def observe(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tensors = (leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor))
        self.read.update(tensor.untyped_storage().data_ptr() for tensor in tensors)
        return func(*args, **kwargs)


class ConvolutionObserver(OperationObserver):
    """Remembers the weights' shapes and the strides of convolutions.

    Attributes:
        seen: A pair per convolution: the shape of its weights, and its strides.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()

    def observe(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func is torch.ops.aten.convolution.default:
            weight, stride = args[1], args[3]
            self.seen.add((tuple(weight.shape), tuple(stride)))
        return func(*args, **kwargs)


class WriteObserver(OperationObserver):
    """Remembers whose memory operations have written into, also where the values stay the same."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.written: set[int] = set()

    def observe(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for place, argument in enumerate(func._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                self._note(args[place] if place < len(args) else kwargs.get(argument.name))
        return func(*args, **kwargs)

    def _note(self, value: Any) -> None:
        for leaf in tree_leaves(value):
            if isinstance(leaf, Tensor) and leaf.layout == torch.strided:
                self.written.add(leaf.untyped_storage().data_ptr())
