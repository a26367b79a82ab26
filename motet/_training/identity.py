"""Identity of losses and optimizers, compared by value rather than by object.

A traced step is used again wherever its identity comes up again. So a loss that a method makes anew
in every round, a lambda or a `partial`, has to be equal to the one of the round before. Functions
are compared by their code and by what they capture, frozen dataclasses by their fields.
"""

from __future__ import annotations

import dataclasses
import dis
import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from itertools import chain
from pathlib import PurePath
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from motet._tracing.layouts import layout
from motet.errors import CaptureError
from motet.task import Task

PLAIN = (type(None), bool, int, str, bytes, type, Enum, ModuleType, torch.dtype, torch.device)
NAMED = (BuiltinFunctionType, np.ufunc, functools._lru_cache_wrapper, torch._ops.OpOverload)
LITERALS = (type(None), bool, int, float, str, bytes, tuple)  # what global constants are
Path = tuple[str, ...]
READS_GLOBAL = ("LOAD_GLOBAL", "LOAD_NAME")


class NoValueError(Exception):
    """Something whose value cannot be compared.

    Attributes:
        thing: What was found.
        path: Where it was found, as in `self.anchor`; empty for the loss or optimizer itself.
    """

    def __init__(self, thing: Any, path: tuple[str, ...]) -> None:
        self.thing, self.path = thing, ".".join(path)
        super().__init__(f"{self.path or 'it'} is {described(thing)}")


def loss_identity(loss: Callable[..., Any]) -> Hashable:
    """Return what tells a loss from others.

    Raises:
        CaptureError: It captures a tensor, or something else that cannot be compared by value.
    """
    try:
        return identity_of(loss)
    except NoValueError as reason:
        raise CaptureError(_refusal(loss, reason)) from None


def identity_of(thing: Any) -> Hashable:
    """Return a hashable that is the same for equal things.

    Raises:
        NoValueError: The thing, or something that it holds, cannot be compared by value.
    """
    return _Reader().read(thing, ())


def holds_tensors(thing: Any) -> bool:
    """Tell whether something is, or is made of, tensors, arrays or networks with weights."""
    if isinstance(thing, Tensor | np.ndarray):
        return True
    if isinstance(thing, nn.Module):
        return any(True for _ in chain(thing.parameters(), thing.buffers()))
    if isinstance(thing, Mapping):
        return any(map(holds_tensors, thing.values()))
    return isinstance(thing, tuple | list) and any(map(holds_tensors, thing))


def described(thing: Any) -> str:
    """Say what something is, in two or three words."""
    kind = type(thing).__name__
    if isinstance(thing, Tensor):
        return f"a tensor of shape {tuple(thing.shape)}"
    if isinstance(thing, nn.Module):
        return f"a network ({kind})"
    article = "an" if kind[:1].lower() in tuple("aeiou") else "a"
    return f"{article} {kind} of tensors" if holds_tensors(thing) else f"{article} {kind}"


class _Reader:
    """Walks through what a function or an object holds."""

    def __init__(self) -> None:
        self._open: list[int] = []  # what is being read: a local function may capture itself

    def read(self, thing: Any, path: Path) -> Hashable:
        if isinstance(thing, (*PLAIN, *NAMED)):
            return type(thing), thing
        if id(thing) in self._open:
            return "again", self._open.index(id(thing))
        self._open.append(id(thing))
        try:
            return type(thing), self._value(thing, path)
        finally:
            self._open.pop()

    def _value(self, thing: Any, path: Path) -> Hashable:
        if isinstance(thing, float | complex):
            return repr(thing)  # 0.0 and -0.0 are equal, and nan is not equal to itself
        if isinstance(thing, Task):  # the copies of a task share its programs
            return thing.programs.token, None if thing.example is None else layout(thing.example)
        if holds_tensors(thing):
            raise NoValueError(thing, path)
        rules: tuple[tuple[Any, Callable[[Any, Path], Hashable]], ...] = (
            (FunctionType, self._function),
            (MethodType, self._bound),
            (functools.partial, self._partial),
            (tuple | list, self._sequence),
            (set | frozenset, self._set),
            (Mapping, self._named),
            (nn.Module, self._settings),
        )
        read = next((read for kind, read in rules if isinstance(thing, kind)), self._object)
        return read(thing, path)

    def _function(self, function: FunctionType, path: Path) -> Hashable:
        code, scope = function.__code__, function.__globals__
        cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
        captured = {name: cell.cell_contents for name, cell in cells if _is_filled(cell)}
        defaults = _by_argument(code, function.__defaults__ or (), last=True)
        return (
            (code, code.co_filename, id(scope)),
            self._named(captured, path),
            self._named(defaults | (function.__kwdefaults__ or {}), path),
            self._globals(code, scope),
        )

    def _globals(self, code: CodeType, scope: dict[str, Any]) -> Hashable:
        """Read the constants and functions of its own module that a function uses.

        Other globals are left out: a step that reads a global tensor is never traced.
        """
        found: list[tuple[str, Hashable]] = []
        for name in globals_read(code):
            value = scope.get(name)
            own = isinstance(value, FunctionType) and value.__globals__ is scope
            if own or isinstance(value, LITERALS):
                with suppress(NoValueError):
                    found.append((name, self.read(value, (name,))))
        return tuple(found)

    def _bound(self, method: MethodType, path: Path) -> Hashable:
        return self.read(method.__func__, path), self.read(method.__self__, (*path, "self"))

    def _partial(self, call: functools.partial[Any], path: Path) -> Hashable:
        code = getattr(call.func, "__code__", None)
        arguments = _by_argument(code, call.args) | call.keywords
        return self.read(call.func, path), self._named(arguments, path)

    def _sequence(self, parts: Any, path: Path) -> Hashable:
        names = getattr(parts, "_fields", None) or range(len(parts))
        return self._named(dict(zip(names, parts, strict=True)), path)

    def _set(self, parts: Any, path: Path) -> Hashable:
        return frozenset(self.read(part, path) for part in parts)

    def _named(self, parts: Mapping[Any, Any], path: Path) -> Hashable:
        return tuple((name, self.read(v, (*path, str(name)))) for name, v in parts.items())

    def _settings(self, module: nn.Module, path: Path) -> Hashable:
        """Read a module without weights, such as `nn.MSELoss()`."""
        return self._named(vars(module), path)

    def _object(self, thing: Any, path: Path) -> Hashable:
        kind: Any = type(thing)
        if dataclasses.is_dataclass(thing) and kind.__dataclass_params__.frozen:
            fields = {f.name: getattr(thing, f.name) for f in dataclasses.fields(thing)}
            return self._named(fields, path)
        if kind.__eq__ is object.__eq__ or kind.__hash__ in (None, object.__hash__):
            raise NoValueError(thing, path)
        try:
            hash(thing)
        except TypeError:
            raise NoValueError(thing, path) from None
        equal_by_its_own_rules: Hashable = thing
        return equal_by_its_own_rules


@functools.lru_cache(maxsize=256)
def globals_read(code: CodeType) -> tuple[str, ...]:
    """Name the global variables that a function reads, and those that functions inside it read."""
    read = (step.argval for step in dis.get_instructions(code) if step.opname in READS_GLOBAL)
    inner = (globals_read(part) for part in code.co_consts if isinstance(part, CodeType))
    return tuple(dict.fromkeys(chain(read, *inner)))


def _is_filled(cell: CellType) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:  # a variable that is not assigned yet
        return False
    return True


def _by_argument(
    code: CodeType | None, values: Sequence[Any], *, last: bool = False
) -> dict[str, Any]:
    """Name values after the arguments that they stand for: the first ones, or the last."""
    names = code.co_varnames[: code.co_argcount] if code else ()
    chosen = names[len(names) - len(values) :] if last else names[: len(values)]
    if len(chosen) != len(values):
        chosen = tuple(f"argument {number}" for number in range(1, len(values) + 1))
    return dict(zip(chosen, values, strict=True))


def _refusal(loss: Callable[..., Any], reason: NoValueError) -> str:
    what = described(reason.thing)
    if not reason.path:
        return (
            f"`fit` expects a loss that can be compared by value: a function, or an object of a "
            f"frozen dataclass. Got {what}. Write @dataclass(frozen=True) above its class."
        )
    name = reason.path.rpartition(".")[2]
    start = f"the loss{_place(loss)} captures `{reason.path}`, {what}. "
    if holds_tensors(reason.thing):
        weights = f"dict({name}.state_dict())" if isinstance(reason.thing, nn.Module) else name
        return (
            f"{start}A captured tensor is neither stacked over clients nor part of a traced step. "
            f"Hand it over: fit(..., loss=loss, given=({weights},)), and take it as an argument: "
            f"def loss(state, batch, {name})."
        )
    return (
        f"{start}It cannot be compared by value, so no two rounds could share a traced step. "
        "Capture numbers, strings, tuples or frozen dataclasses instead, and hand tensors over: "
        "fit(..., loss=loss, given=(...))."
    )


def _place(loss: Any) -> str:
    while isinstance(loss, functools.partial):
        loss = loss.func
    code = getattr(loss, "__code__", None)
    return f" in {PurePath(code.co_filename).name}, line {code.co_firstlineno}," if code else ""
