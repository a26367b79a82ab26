"""Checks that a method remembers nothing outside its states: in fields, class or module."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from torch import Tensor

from motet.method import AnyMethod, Method

Memory = dict[str, tuple[Any, ...]]


def remembered(method: AnyMethod) -> Memory:
    """Note what can be found by name, and what its containers hold."""
    spaces: dict[str, Mapping[str, Any]] = {"self": vars(method)}
    for kind in type(method).__mro__:
        if issubclass(kind, Method) and kind is not Method:
            spaces[kind.__name__] = vars(kind)
            spaces[kind.__module__] = vars(sys.modules[kind.__module__])
    computed = {
        name
        for kind in type(method).__mro__
        for name, value in vars(kind).items()
        if isinstance(value, cached_property)
    }
    return {
        f"{space}.{name}": _contents(value)
        for space, values in spaces.items()
        for name, value in list(values.items())
        if not (name.startswith("__") or (space == "self" and name in computed))
    }


def changes(before: Memory, after: Memory) -> Iterator[str]:
    """Name what is new, gone or different."""
    for place in {**before, **after}:
        old, new = before.get(place), after.get(place)
        if old is None or new is None or not _are_one(old, new):
            yield place


def _are_one(old: tuple[Any, ...], new: tuple[Any, ...]) -> bool:
    return len(old) == len(new) and all(a is b for a, b in zip(old, new, strict=True))


def _contents(value: Any) -> tuple[Any, ...]:
    """List what must stay the same object: a value, and what it is made of."""
    if isinstance(value, Tensor):
        return value, value._version
    if isinstance(value, dict):
        return value, *value.keys(), *value.values()
    if isinstance(value, list | set):
        return value, *value
    return (value,)
