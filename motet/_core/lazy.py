"""Public names that load on first use, listed once: in the package's stub file.

`motet --help` must not wait for torch, so a package's names are imported on first use. The list
is the stub `__init__.pyi`, which type checkers and editors read anyway, so a name is written down
once.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from importlib import import_module
from importlib.resources import files
from typing import Any


def attach(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` for a package, as its stub lists them."""
    homes = _homes(package)

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = homes[name]
        return (
            import_module(f"{package}.{name}")
            if home == package
            else getattr(import_module(home), name)
        )

    def listed() -> list[str]:
        return sorted([*homes, "__version__"] if package == "motet" else homes)

    return load, listed, sorted(homes)


def _homes(package: str) -> dict[str, str]:
    """Read which module each public name comes from.

    `from motet.methods import *` stands for the names in that package's own stub.
    """
    stub = files(package).joinpath("__init__.pyi").read_text(encoding="utf-8")
    homes: dict[str, str] = {}
    for statement in ast.parse(stub).body:
        if not isinstance(statement, ast.ImportFrom) or statement.module is None:
            continue
        for alias in statement.names:
            if alias.name == "*":
                homes |= _homes(statement.module)
            else:
                homes[alias.name] = statement.module
    return homes
