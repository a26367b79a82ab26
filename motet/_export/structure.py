"""The structure of a tree of tensors as JSON values, to rebuild it without the original run.

Tensors are named by their path. The path does not show which nodes are tuples or named tuples, so
these are listed; everything else is a dict. For safety, no module named in a file is imported: a
named tuple must be in a module that is already loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from motet._core.tree import readable
from motet.errors import WireError

DICT, TUPLE = "dict", "tuple"


def describe(value: Any) -> dict[str, str]:
    """Return the kind of each node that is not a non-empty dict, by path.

    >>> describe({"a": (Tensor(), Tensor())})
    {'a': 'tuple'}
    """
    return dict(_nodes(value, ""))


def rebuild(named: Mapping[str, Tensor], nodes: Mapping[str, str]) -> Any:
    """Rebuild the tree from tensors by path and the nodes that `describe` returned."""
    root: dict[str, Any] = {}
    for path in (path for path, kind in nodes.items() if path):
        _enter(root, path.split("/"))
    for path, leaf in named.items():
        *steps, last = path.split("/")
        _enter(root, steps)[last] = leaf
    return _as_declared(root, "", nodes)


def _nodes(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Tensor):
        return
    if isinstance(value, dict):
        if not value:
            yield path, DICT
        steps = [(str(k).replace("%", "%25").replace("/", "%2F"), v) for k, v in value.items()]
    else:
        kind = type(value)
        yield path, f"{kind.__module__}:{kind.__qualname__}" if hasattr(kind, "_fields") else TUPLE
        names = getattr(value, "_fields", range(len(value)))
        steps = [(str(name), below) for name, below in zip(names, value, strict=True)]
    for step, below in steps:
        yield from _nodes(below, f"{path}/{step}" if path else step)


def _enter(root: dict[str, Any], steps: list[str]) -> dict[str, Any]:
    for step in steps:
        root = root.setdefault(step, {})
    return root


def _as_declared(value: Any, path: str, nodes: Mapping[str, str]) -> Any:
    if isinstance(value, Tensor):
        return value
    below = {k: _as_declared(v, f"{path}/{k}" if path else k, nodes) for k, v in value.items()}
    kind = nodes.get(path, DICT)
    if kind == DICT:
        return {readable(name): child for name, child in below.items()}
    if kind == TUPLE:
        return tuple(below[str(i)] for i in range(len(below)))
    return _named_tuple(kind, below)


def _named_tuple(kind: str, fields: dict[str, Any]) -> Any:
    module, _, name = kind.partition(":")
    found = getattr(sys.modules.get(module), name, None)
    if not (isinstance(found, type) and issubclass(found, tuple)) or (
        set(getattr(found, "_fields", ())) != set(fields)
    ):
        raise WireError(
            f"the file contains a {kind} with fields {sorted(fields)}, which is unknown here; load "
            "it with the version and the method that wrote it."
        )
    return found(**fields)
