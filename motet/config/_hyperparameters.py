"""The hyperparameters of a method, for people: names, defaults and meanings."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

from motet.config._families import family_of_value
from motet.method import AnyMethod


class Hyperparameter(NamedTuple):
    """A field of a method, for people."""

    name: str
    default: str  # as a config would say it
    meaning: str


def hyperparameters(method: type[AnyMethod]) -> list[Hyperparameter]:
    """List a method's fields, its own first, with defaults and what their docstrings say."""
    meanings: dict[str, str] = {}
    for kind in reversed(method.__mro__):
        meanings |= attribute_docs(kind.__doc__ or "")
    inherited = {field.name for base in method.__bases__ for field in fields(base)}
    ordered = sorted(fields(method), key=lambda field: field.name in inherited)
    return [
        Hyperparameter(f.name, shown(getattr(method(), f.name)), meanings.get(f.name, ""))
        for f in ordered
    ]


def attribute_docs(docstring: str) -> dict[str, str]:
    """Read the Attributes section of a docstring.

    >>> attribute_docs('''Short.
    ...
    ...     Attributes:
    ...         lam: Strength of the pull,
    ...             0 is Local.
    ...     ''')
    {'lam': 'Strength of the pull, 0 is Local.'}
    """
    _, _, section = inspect.cleandoc(docstring).partition("\nAttributes:\n")
    found: dict[str, str] = {}
    for line in section.splitlines():
        entry = re.match(r"    (\w+): (.*)", line)
        if entry:
            found[entry[1]] = entry[2]
        elif line.startswith("        ") and found:
            found[next(reversed(found))] += f" {line.strip()}"
        elif line.strip():
            break
    return found


def shown(value: Any) -> str:
    """Write a default as a config would, without the zeros: `sgd(lr=0.1)`."""
    if value is None:
        return "none"
    if is_dataclass(value) and not isinstance(value, type):
        values = {field.name: getattr(value, field.name) for field in fields(value)}
        inside = ", ".join(f"{name}={shown(v)}" for name, v in values.items() if v)
        kind = family_of_value(value).name_of(type(value))
        return f"{kind}({inside})" if inside else kind
    return f"[{', '.join(shown(v) for v in value)}]" if isinstance(value, tuple) else str(value)
