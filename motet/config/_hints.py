"""What the types of fields accept from a config, and how to say it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from motet._core.selectors import Blocks
from motet.config._families import family_of

NONE = "none"  # TOML has no null
Sort = Literal["none", "choice", "list", "mapping", "scalar", "blocks", "member", "table", "python"]
_SCALARS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
_SORTS: dict[Any, Sort] = {
    NoneType: "none",
    Literal: "choice",
    tuple: "list",
    list: "list",
    dict: "mapping",
    Sequence: "list",
    Blocks: "blocks",
    **dict.fromkeys(_SCALARS, "scalar"),
}


def sort_of(hint: Any) -> Sort:
    """Tell how a type is written in a config; a union has no sort, only its parts have."""
    kind = get_origin(hint) or hint
    if kind in _SORTS:
        return _SORTS[kind]
    if family_of(hint) is not None:
        return "member"
    return "table" if is_dataclass(kind) else "python"


def parts_of(hint: Any) -> tuple[Any, ...]:
    """List the alternatives of a union; any other type is its own only alternative."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def alternative(hint: Any, value: Any) -> Any:
    """Choose which of a type's alternatives a value is meant for; None if it fits none."""
    fitting = [part for part in parts_of(hint) if _ACCEPTS[sort_of(part)](part, value)]
    # A whole number is a float only where it cannot be a whole number; "none" is text only where
    # it cannot be None.
    fitting.sort(key=lambda part: (part is not NoneType, part is float and isinstance(value, int)))
    return fitting[0] if fitting else None


def describe(hint: Any) -> str:
    """Say in words what a type accepts.

    >>> describe(int | None), describe(Literal["average", "local"])
    ('a whole number or "none"', '"average" or "local"')
    """
    return " or ".join(dict.fromkeys(_DESCRIBE[sort_of(part)](part) for part in parts_of(hint)))


def example(hint: Any) -> str:
    """Write a value that a type accepts, as TOML."""
    family = family_of(hint)
    if family is not None:
        return f'"{next(iter(family.members))}"'
    return {int: "20", float: "0.5", bool: "true"}.get(hint, '"..."')


def field_types(kind: Any) -> dict[str, Any]:
    """Resolve the annotations of a dataclass."""
    return get_type_hints(kind)


def _is_scalar(hint: Any, value: Any) -> bool:
    if isinstance(value, bool):  # which Python takes for a whole number
        return hint is bool
    return isinstance(value, int | float if hint is float else hint)


def _describe_member(hint: Any) -> str:
    family = family_of(hint)
    assert family is not None
    article = "an" if family.what[0] in "aeiou" else "a"
    return f"{article} {family.what} such as {{{family.tag} = {example(hint)}}}"


_ACCEPTS: dict[Sort, Callable[[Any, Any], bool]] = {
    "none": lambda _, value: value is None or value == NONE,
    "choice": lambda hint, value: isinstance(value, str | int) and value in get_args(hint),
    "list": lambda _, value: isinstance(value, list | tuple),
    "mapping": lambda _, value: isinstance(value, Mapping),
    "scalar": _is_scalar,
    "blocks": lambda _, value: isinstance(value, Mapping),
    "member": lambda _, value: isinstance(value, Mapping | str),
    "table": lambda _, value: isinstance(value, Mapping),
    "python": lambda *_: False,
}

_DESCRIBE: dict[Sort, Callable[[Any], str]] = {
    "none": lambda _: f'"{NONE}"',
    "choice": lambda hint: " or ".join(f'"{choice}"' for choice in get_args(hint)),
    "list": lambda _: "a list",
    "mapping": lambda _: "a table",
    "scalar": lambda hint: _SCALARS[hint],
    "blocks": lambda _: "{blocks = 2}",
    "member": _describe_member,
    "table": lambda _: "a table",
    "python": lambda _: "a Python object, which a config cannot hold",
}
