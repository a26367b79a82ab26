"""A schema as JSON values, and back; what is not a schema is refused in a sentence."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, get_args

from motet.data._columns import DATE_PARTS, KINDS, Column, Scaling, Target, TargetKind
from motet.errors import StateError

if TYPE_CHECKING:  # a schema writes itself, so it cannot be imported here
    from motet.data._schema import Schema

VERSION = 1
LONGEST = 10_000  # characters of a name
NEW = ("event",)  # entries that schemas may lack
Reader = Callable[[Any, str], Any]


def to_dict(schema: Schema) -> dict[str, Any]:
    """Return the schema as JSON values."""
    return {"version": VERSION} | {
        f.name: _plain(getattr(schema, f.name)) for f in fields(schema) if f.init
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Column | Target | Scaling):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def fields_from_dict(written: Any) -> dict[str, Any]:
    """Read the fields of a schema from `to_dict`."""
    table = _table(written, "a schema")
    if table.get("version") != VERSION:
        raise StateError(
            f"this version reads schemas of version {VERSION}, got {table.get('version')!r}."
        )
    return _members(table, _SCHEMA, "the schema", also=("version",))


def _table(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise StateError(f"{what} must be a JSON object, got {_shown(value)}.")
    return dict(value)


def _members(
    table: Mapping[str, Any], readers: Mapping[str, Reader], what: str, also: tuple[str, ...] = ()
) -> dict[str, Any]:
    for name in table:
        if name not in readers and name not in also:
            raise StateError(
                f'{what} has an unknown entry "{name[:80]}", which this version does not know.'
            )
    table = {**{name: None for name in NEW if name in readers}, **table}
    missing = [name for name in readers if name not in table]
    if missing:
        raise StateError(f'{what} has no entry "{missing[0]}".')
    return {name: read(table[name], f"{name} of {what}") for name, read in readers.items()}


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str) or len(value) > LONGEST:
        raise StateError(f"{what} must be text, got {_shown(value)}.")
    return value


def _flag(value: Any, what: str) -> bool:
    if not isinstance(value, bool):
        raise StateError(f"{what} must be true or false, got {_shown(value)}.")
    return value


def _number(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise StateError(f"{what} must be a number, got {_shown(value)}.")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise StateError(f"{what} must be a finite number, got {_shown(value)}.")
    return number


def _choice(*known: str) -> Reader:
    def read(value: Any, what: str) -> str:
        if not isinstance(value, str) or value not in known:
            raise StateError(f"{what} must be one of {', '.join(known)}, got {_shown(value)}.")
        return value

    return read


def _optional(read: Reader) -> Reader:
    return lambda value, what: None if value is None else read(value, what)


def _list(read: Reader) -> Reader:
    def read_all(value: Any, what: str) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise StateError(f"{what} must be a list, got {_shown(value)}.")
        return tuple(read(item, f"entry {number} of {what}") for number, item in enumerate(value))

    return read_all


def _mapping(read: Reader) -> Reader:
    def read_all(value: Any, what: str) -> dict[str, Any]:
        return {
            _text(key, f"a key of {what}"): read(item, what)
            for key, item in _table(value, what).items()
        }

    return read_all


def _record(kind: Callable[..., Any], readers: Mapping[str, Reader]) -> Reader:
    return lambda value, what: kind(**_members(_table(value, what), readers, what))


def _shown(value: Any) -> str:
    text = repr(value) if isinstance(value, str | int | float | bool | None) else ""
    return text[:80] if text else f"a {type(value).__name__}"


_COLUMN: dict[str, Reader] = {
    "name": _text,
    "kind": _choice(*KINDS),
    "categories": _list(_text),
    "other": _flag,
    "parts": _list(_choice(*DATE_PARTS)),
    "format": _optional(_text),
    "reference": _optional(_text),
    "indicator": _flag,
    "low": _optional(_number),
    "high": _optional(_number),
    "unit": _optional(_text),
}
_TARGET: dict[str, Reader] = {
    "name": _text,
    "kind": _choice(*get_args(TargetKind)),
    "labels": _list(_text),
    "mapping": _mapping(_text),
    "unit": _optional(_text),
    "event": _optional(_text),
}
_SCALING: dict[str, Reader] = {"mean": _list(_number), "deviation": _list(_number)}
_SCHEMA: dict[str, Reader] = {
    "columns": _list(_record(Column, _COLUMN)),
    "target": _record(Target, _TARGET),
    "client": _optional(_text),
    "na": _list(_text),
    "merge_spellings": _flag,
    "decimal": _text,
    "fills": _optional(_list(_number)),
    "scaling": _optional(_record(Scaling, _SCALING)),
    "site_fills": _mapping(_list(_number)),
    "site_scaling": _mapping(_record(Scaling, _SCALING)),
}
