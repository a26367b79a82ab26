"""Tensors in a file of `torch.save` as it was before version 1.6, read without running it.

Such a file is pickled: to load it is to run it. Here its instructions are only listed, by the
standard library's `pickletools`, and the few that describe tensors are followed. Anything else is
refused. After the instructions come the numbers, storage by storage.
"""

from __future__ import annotations

import pickletools
import struct
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from motet.errors import WireError

MAGIC = 0x1950A86A20F9469CFC6C
TYPES = {
    "torch FloatStorage": np.dtype("<f4"),
    "torch LongStorage": np.dtype("<i8"),
    "torch DoubleStorage": np.dtype("<f8"),
    "torch HalfStorage": np.dtype("<f2"),
}
REBUILD, ORDERED = "torch._utils _rebuild_tensor_v2", "collections OrderedDict"
PLAIN = {"BININT", "BININT1", "BININT2", "LONG1", "BINUNICODE", "SHORT_BINUNICODE", "BINFLOAT"}
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
MARK = object()


class Name(NamedTuple):
    """What a file wants to have imported: noted, and never imported."""

    path: str


class Part(NamedTuple):
    """A tensor's place in the storages."""

    dtype: np.dtype[Any]
    storage: str
    start: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def read_state(contents: bytes) -> dict[str, Tensor]:
    """Read the state of a network, a tensor by name."""
    file = BytesIO(contents)
    if _follow(file) != MAGIC:
        raise WireError("not a file of torch before 1.6, which begins with a number of its own.")
    _follow(file), _follow(file)  # the version, and the sizes of types
    state, keys = _follow(file), _follow(file)
    if not isinstance(state, dict) or not isinstance(keys, list):
        raise WireError("the file holds no state of a network.")
    parts = {name: part for name, part in state.items() if isinstance(part, Part)}
    types = {part.storage: part.dtype for part in parts.values()}
    storages = dict(_storages(file, keys, types))
    return {str(name): _tensor(part, storages) for name, part in parts.items()}


def _storages(
    file: BytesIO, keys: list[Any], types: dict[str, np.dtype[Any]]
) -> Iterator[tuple[str, np.ndarray]]:
    for key in keys:
        if key not in types:
            raise WireError("the file has numbers that belong to no tensor.")
        header = file.read(8)
        count = struct.unpack("<q", header)[0] if len(header) == 8 else -1
        wanted = types[key].itemsize * count
        numbers = file.read(max(wanted, 0))
        if count < 0 or len(numbers) != wanted:
            raise WireError("the file is incomplete.")
        yield key, np.frombuffer(numbers, types[key])


def _tensor(part: Part, storages: dict[str, np.ndarray]) -> Tensor:
    numbers = storages.get(part.storage)
    reach = sum((n - 1) * stride for n, stride in zip(part.shape, part.strides, strict=True))
    if numbers is None or min(part.shape, default=1) < 1 or part.start + reach >= len(numbers):
        raise WireError("a tensor lies outside of its numbers; the file is damaged.")
    strides = tuple(stride * numbers.itemsize for stride in part.strides)
    view = np.lib.stride_tricks.as_strided(numbers[part.start :], part.shape, strides)
    return torch.from_numpy(np.array(view))


def _follow(file: BytesIO) -> Any:
    """Follow the instructions of one pickle, and return what it describes."""
    stack: list[Any] = []
    memory: dict[int, Any] = {}
    try:
        for code, found, _ in pickletools.genops(file):
            name, argument = code.name, cast("Any", found)
            if name in PLAIN:
                stack.append(argument)
            elif name in CONSTANTS:
                stack.append(CONSTANTS[name])
            elif name in ("BINPUT", "LONG_BINPUT"):
                memory[argument] = stack[-1]
            elif name in ("BINGET", "LONG_BINGET"):
                stack.append(memory[argument])
            elif name == "GLOBAL":
                stack.append(Name(argument))
            elif name == "STOP":
                return stack.pop()
            elif name != "PROTO":
                _STEPS[name](stack)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as reason:
        raise WireError(f"not a plain state of a network ({reason!r:.80}).") from None
    raise WireError("the file is incomplete.")


def _since_mark(stack: list[Any]) -> list[Any]:
    place = len(stack) - 1 - stack[::-1].index(MARK)
    values = stack[place + 1 :]
    del stack[place:]
    return values


def _set_items(stack: list[Any]) -> None:
    values = _since_mark(stack)
    stack[-1].update(zip(values[::2], values[1::2], strict=True))


def _set_item(stack: list[Any]) -> None:
    value, key = stack.pop(), stack.pop()
    stack[-1][key] = value


def _append(stack: list[Any]) -> None:
    values = _since_mark(stack)
    stack[-1].extend(values)


def _last(count: int) -> Callable[[list[Any]], None]:
    def gather(stack: list[Any]) -> None:
        values = tuple(stack[len(stack) - count :])
        del stack[len(stack) - count :]
        stack.append(values)

    return gather


def _reduce(stack: list[Any]) -> None:
    """Describe what a call would make: an empty dict, or a tensor."""
    values, called = stack.pop(), stack.pop()
    if called == Name(ORDERED) and values == ():
        stack.append({})
    elif called == Name(REBUILD):
        (dtype, storage), start, shape, strides = values[:4]
        stack.append(Part(dtype, storage, start, tuple(shape), tuple(strides)))
    else:
        raise ValueError(f"it calls {getattr(called, 'path', called)}")


def _storage(stack: list[Any]) -> None:
    _, kind, key, *_ = stack.pop()
    stack.append((TYPES[kind.path], key))


_STEPS: dict[str, Callable[[list[Any]], Any]] = {
    "MARK": lambda stack: stack.append(MARK),
    "EMPTY_DICT": lambda stack: stack.append({}),
    "EMPTY_LIST": lambda stack: stack.append([]),
    "EMPTY_TUPLE": lambda stack: stack.append(()),
    "TUPLE": lambda stack: stack.append(tuple(_since_mark(stack))),
    "TUPLE1": _last(1),
    "TUPLE2": _last(2),
    "TUPLE3": _last(3),
    "SETITEMS": _set_items,
    "SETITEM": _set_item,
    "APPENDS": _append,
    "BUILD": lambda stack: stack.pop(),  # attributes of the dict: not needed
    "REDUCE": _reduce,
    "BINPERSID": _storage,
}
