"""Arithmetic on trees of named tensors: dicts, tuples and NamedTuples whose leaves are tensors.

A `State` is the flat case: a model's parameters and buffers by name. Leaves are matched by name,
never by position.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from motet.errors import StructureError

State = dict[str, Tensor]
T = TypeVar("T")


def tree_map(fn: Callable[..., Tensor], tree: T, *rest: T) -> T:
    """Apply `fn` leaf by leaf.

    >>> tree_map(torch.add, {"a": torch.tensor(1)}, {"a": torch.tensor(2)})
    {'a': tensor(3)}
    """
    if isinstance(tree, Tensor):
        return cast(T, fn(tree, *rest))
    if isinstance(tree, dict):
        for other in rest:
            check_names(tree, cast(dict[str, Any], other))
        branches = {k: tree_map(fn, v, *(cast(Any, r)[k] for r in rest)) for k, v in tree.items()}
        return cast(T, type(tree)(branches))
    if isinstance(tree, tuple):
        values = [tree_map(fn, v, *(cast(Any, r)[i] for r in rest)) for i, v in enumerate(tree)]
        return cast(T, type(tree)(*values) if hasattr(tree, "_fields") else tuple(values))
    raise StructureError(
        f"a tree is made of tensors, dicts and (named) tuples, but holds {type(tree).__name__}; "
        "turn numbers into tensors with `torch.tensor`."
    )


def leaves(tree: Any) -> list[Tensor]:
    """List the tensors of a tree, in the order of `flatten`."""
    if isinstance(tree, Tensor):
        return [tree]
    branches = tree.values() if isinstance(tree, dict) else tree
    return [leaf for branch in branches for leaf in leaves(branch)]


def flatten(tree: Any, path: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield (path, tensor) pairs; the paths are the array names on the wire and on disk.

    A slash inside a name is escaped, so that a client called "lear/fool" stays one step of the
    path.
    """
    if isinstance(tree, Tensor):
        yield path, tree
        return
    if isinstance(tree, dict):
        steps = [(str(name).replace("%", "%25").replace("/", "%2F"), tree[name]) for name in tree]
    else:
        names = getattr(tree, "_fields", range(len(tree)))
        steps = [(str(name), value) for name, value in zip(names, tree, strict=True)]
    for step, value in steps:
        yield from flatten(value, f"{path}/{step}" if path else step)


def readable(path: str) -> str:
    """Write a path as its author would: slots such as "local/head.weight" without the escapes.

    >>> readable("local%2Fhead.weight")
    'local/head.weight'
    """
    return path.replace("%2F", "/").replace("%25", "%")


def unflatten(template: T, named: Mapping[str, Tensor]) -> T:
    """Rebuild `template`'s structure from named leaves; the structure itself never travels."""
    paths = [path for path, _ in flatten(template)]
    check_names(dict.fromkeys(paths), named)
    ordered = iter(paths)
    return tree_map(lambda _: named[next(ordered)], template)


def stack(trees: Sequence[T]) -> T:
    """Stack equal trees on a new leading axis."""
    return tree_map(lambda *rows: torch.stack(rows), trees[0], *trees[1:])


def row(tree: T, index: int) -> T:
    """Take one row of a stacked tree, as a copy that shares no memory with the stack."""
    return tree_map(lambda leaf: leaf[index].clone(), tree)


def where(condition: Tensor, yes: T, no: T) -> T:
    """Choose a whole tree by one boolean."""
    return tree_map(lambda a, b: torch.where(condition, a, b), yes, no)


def clone(tree: T) -> T:
    """Copy every tensor."""
    return tree_map(torch.clone, tree)


def zeros_like(tree: T) -> T:
    """Make a tree of zeros."""
    return tree_map(torch.zeros_like, tree)


def subtract(a: T, b: T) -> T:
    """Compute a - b, leaf by leaf."""
    return tree_map(torch.sub, a, b)


def interpolate(a: T, b: T, t: float | Tensor) -> T:
    """Compute a + t (b - a), leaf by leaf."""

    def between(x: Tensor, y: Tensor) -> Tensor:
        return torch.lerp(x, y, t.to(x.dtype) if isinstance(t, Tensor) else t)

    return tree_map(between, a, b)


def pick(state: Mapping[str, Tensor], names: Collection[str]) -> State:
    """Keep the entries called `names`, in the state's order."""
    return {k: v for k, v in state.items() if k in names}


def drop(state: Mapping[str, Tensor], names: Collection[str]) -> State:
    """Leave out the entries called `names`."""
    return {k: v for k, v in state.items() if k not in names}


def prefixed(prefix: str, state: Mapping[str, Tensor]) -> State:
    """Put a model into a named slot of a larger state: `"local/head.weight"`."""
    return {f"{prefix}/{k}": v for k, v in state.items()}


def slot(prefix: str, state: Mapping[str, Tensor]) -> State:
    """Take the model out of a named slot."""
    start = f"{prefix}/"
    return {k.removeprefix(start): v for k, v in state.items() if k.startswith(start)}


def squared_distance(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> Tensor:
    """Compute ||a - b||^2 over the floating-point entries of two equal states."""
    check_names(a, b)
    terms = [(a[k] - b[k]).square().sum() for k in a if a[k].is_floating_point()]
    return torch.stack(terms).sum() if terms else torch.zeros(())


def dot(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> Tensor:
    """Compute the inner product of two states of floating-point tensors."""
    check_names(a, b)
    terms = [(a[k] * b[k]).sum() for k in a]
    return torch.stack(terms).sum() if terms else torch.zeros(())


def is_finite(tree: Any) -> bool:
    """Tell whether no number of a tree is NaN or infinite."""

    def finite(leaf: Tensor) -> bool:
        # The sum is quicker, and finite where every number is, unless it is too large itself.
        return bool(leaf.sum().isfinite()) or bool(leaf.isfinite().all())

    return all(finite(leaf) for leaf in leaves(tree) if leaf.is_floating_point())


def not_finite(tree: Any) -> str:
    """Name the first leaf that holds a NaN or an infinity; "" if every number is finite."""
    if is_finite(tree):  # one quick pass, which is all that a sound tree takes
        return ""
    named = flatten(tree)
    return next(readable(path) or "a number" for path, leaf in named if not is_finite(leaf))


def largest(tree: Any) -> float:
    """Return the largest absolute value of a tree's floating-point numbers; 0 if it has none."""
    floats = [leaf for leaf in leaves(tree) if leaf.is_floating_point() and leaf.numel()]
    return max((float(leaf.abs().max()) for leaf in floats), default=0.0)


def float_type(tree: Any) -> torch.dtype:
    """Return the floating-point type of a tree's tensors: the widest, if there are several.

    >>> float_type({"weight": torch.zeros(2, dtype=torch.float64), "steps": torch.tensor(3)})
    torch.float64
    """
    found = [leaf.dtype for leaf in leaves(tree) if leaf.is_floating_point()]
    return reduce(torch.promote_types, found) if found else torch.get_default_dtype()


def count_bytes(tree: Any) -> int:
    """Count the bytes of the tensors in a tree: what it costs to send."""
    return sum(leaf.numel() * leaf.element_size() for leaf in leaves(tree))


def check_names(expected: Mapping[str, Any], got: Mapping[str, Any]) -> None:
    """Refuse two mappings whose names differ."""
    if expected.keys() != got.keys():
        missing, extra = (
            sorted(expected.keys() - got.keys()),
            sorted(got.keys() - expected.keys()),
        )
        raise StructureError(
            f"two trees must have the same names; missing {missing[:4]}, unexpected {extra[:4]}. "
            "Were both made from the same model and selector?"
        )
