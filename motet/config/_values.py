"""Values for TOML and JSON, and the objects they stand for, driven by the types of fields.

`to_plain` writes an object down with every default; `from_plain` reads it back to an equal object.
Errors name the key, what was expected and what was found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from typing import Any, TypeVar, get_args

import numpy as np

from motet._core.option_table import ROWS
from motet._core.selectors import Blocks
from motet.config._families import Family, family_of, family_of_value
from motet.config._hints import Sort, alternative, describe, example, field_types, sort_of
from motet.config._limits import check_count
from motet.errors import CapabilityError, RequestError, nearest, under

T = TypeVar("T")


def to_plain(value: Any, where: str = "") -> Any:
    """Write a value down as scalars, lists and tables; None stays None."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(k): to_plain(v, _below(where, str(k))) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(v, where) for v in value]
    return {"blocks": value.last} if isinstance(value, Blocks) else _write_member(value, where)


def from_plain(hint: Any, value: Any, where: str, default: Any = None) -> Any:
    """Read a value of the type `hint`; a table that leaves its tag out changes the `default`."""
    chosen = alternative(hint, value)
    if chosen is None:
        raise RequestError(f"{where} expects {describe(hint)}; got {_shown(value)}.", option=where)
    read = _READERS.get(sort_of(chosen))
    return value if read is None else read(chosen, value, where, default)


def read_fields(kind: type[T], table: Mapping[str, Any], where: str, base: T | None = None) -> T:
    """Make a dataclass from a table; keys that are left out come from `base`, or the defaults."""
    known = {field.name: field for field in fields(kind) if field.init}  # type: ignore[arg-type]
    hints = field_types(kind)
    for key in table:
        if key not in known:
            raise RequestError(f'[{where}] has no key "{key}"; {nearest(key, known)}.')
    values = {
        key: from_plain(hints[key], value, _below(where, key), _fallback(known[key], base))
        for key, value in table.items()
    }
    if base is not None:
        with under(where):
            return replace(base, **values)  # type: ignore[type-var]  # it is a dataclass
    _refuse_missing(
        {n: hints[n] for n, f in known.items() if n not in values and default_of(f) is MISSING},
        where,
    )
    with under(where):
        return kind(**values)


def default_of(field: Field[Any]) -> Any:
    """Return a field's default; MISSING where there is none."""
    return field.default_factory() if field.default_factory is not MISSING else field.default


def _refuse_missing(missing: Mapping[str, Any], where: str) -> None:
    if not missing:
        return
    needed = " and ".join(f"{name} ({describe(hint)})" for name, hint in missing.items())
    flags = " ".join(_flag(where, name, hint) for name, hint in missing.items())
    raise RequestError(f"[{where}] needs {needed}: give {flags}, or write it to [{where}].")


def _flag(where: str, name: str, hint: Any) -> str:
    """Write the flag that sets a key: its own if it has one."""
    own = next((row for row in ROWS if row.key == f"{where}.{name}" and row.flag), None)
    if own is not None:
        return f"{own.flag} {own.metavar or name.upper()}"
    return f"--set {where}.{name}={example(hint)}"


def _write_member(value: Any, where: str) -> dict[str, Any]:
    if not is_dataclass(value) or isinstance(value, type):
        raise CapabilityError(
            f"{where or 'the value'} holds a {type(value).__name__}, which a config cannot hold; "
            "use numbers, text, lists, or a dataclass of them."
        )
    family = family_of_value(value)
    written = {
        field.name: to_plain(getattr(value, field.name), _below(where, field.name))
        for field in fields(value)
        if field.init
    }
    return {family.tag: family.name_of(type(value)), **written}


def _read_member(hint: Any, value: Any, where: str, default: Any) -> Any:
    family = family_of(hint)
    assert family is not None
    table = {family.tag: value} if isinstance(value, str) else dict(value)
    name = table.pop(family.tag, None)
    if name is None:
        return _change_member(family, table, where, default)
    if not isinstance(name, str):
        raise RequestError(f"{where}.{family.tag} expects text; got {_shown(name)}.")
    with under(where):
        kind = family.named(name)
    return read_fields(kind, table, where)


def _change_member(family: Family, table: dict[str, Any], where: str, default: Any) -> Any:
    # A default without a key, such as the constant schedule, has nothing to change either.
    if not is_dataclass(default) or isinstance(default, type) or not fields(default):
        members = ", ".join(family.members)
        raise RequestError(
            f"[{where}] needs {family.tag}, to say which {family.what} it is: {members}."
        )
    return read_fields(type(default), table, where, base=default)


def _read_scalar(hint: Any, value: Any, where: str, _: Any) -> Any:
    if hint is float:
        return _as_float(value, where)
    if hint is int:
        check_count(value, where)
    if hint is str and "\0" in value:
        raise RequestError(f"{where} expects text; {_shown(value)} holds a NUL character.")
    return value


def _as_float(value: float, where: str) -> float:
    try:
        number = float(value)
    except OverflowError:
        raise RequestError(
            f"{where} is too large for a number with a point.", option=where
        ) from None
    if math.isnan(number):
        raise RequestError(f"{where} expects a number; got nan.", option=where)
    return number


def _read_list(hint: Any, value: Sequence[Any], where: str, _: Any) -> tuple[Any, ...]:
    parts = get_args(hint)
    if sort_of(hint) == "list" and (Ellipsis in parts or len(parts) == 1):
        parts = parts[:1] * len(value)
    if len(value) != len(parts):
        raise RequestError(
            f"{where} expects a list of {len(parts)} values; got {len(value)}: {list(value)}."
        )
    return tuple(
        from_plain(part, item, f"{where}[{number}]")
        for number, (part, item) in enumerate(zip(parts, value, strict=True))
    )


def _read_mapping(hint: Any, value: Mapping[str, Any], where: str, _: Any) -> dict[str, Any]:
    kind = get_args(hint)[1]
    return {
        str(key): from_plain(kind, item, _below(where, str(key))) for key, item in value.items()
    }


def _read_blocks(_: Any, value: Mapping[str, Any], where: str, __: Any) -> Blocks:
    if set(value) != {"blocks"}:
        raise RequestError(f"{where} expects {{blocks = 2}}; got {dict(value)}.")
    return Blocks(last=from_plain(int, value["blocks"], f"{where}.blocks"))


_READERS: dict[Sort, Callable[[Any, Any, str, Any], Any]] = {
    "none": lambda *_: None,
    "list": _read_list,
    "mapping": _read_mapping,
    "scalar": _read_scalar,
    "blocks": _read_blocks,
    "member": _read_member,
    "table": lambda hint, value, where, _: read_fields(hint, value, where),
}


def _fallback(field: Field[Any], base: Any) -> Any:
    return getattr(base, field.name) if base is not None else default_of(field)


def _shown(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _below(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key
