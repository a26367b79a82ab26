"""Code of the user's own that a config or a flag names as "package.module:Name"."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from motet._core.real_paths import real_path
from motet.errors import RequestError


def import_named(path: str) -> Any:
    """Import what "package.module:Name" names; the working directory is searched last.

    Raises:
        ImportError: There is no such module, or it cannot be imported.
        AttributeError: The module has no such name.
        ValueError: The text does not name a module.
    """
    module, _, name = path.partition(":")
    here = str(Path.cwd())
    added = here not in sys.path
    if added:
        sys.path.append(here)
    try:
        return getattr(import_module(module), name)
    finally:
        if added:
            sys.path.remove(here)


def search_in(folder: Path) -> None:
    """Let `import` find modules in a folder, after everything that is installed."""
    here = str(real_path(folder))
    if here not in sys.path:  # it stays: a network may import a neighbour when it is built
        sys.path.append(here)


def own_modules(tables: Mapping[str, Any]) -> set[str]:
    """List the top-level modules that the tables of a config name.

    >>> own_modules({"model": {"name": "networks.small:build"}, "method": {"name": "fedper"}})
    {'networks'}
    """
    return {text.partition(":")[0].partition(".")[0] for text in _names(tables)}


def check_not_hidden(modules: set[str], folder: Path) -> None:
    """Refuse a module beside a config if Python would import another one of the same name."""
    for module in sorted(modules):
        beside = [folder / f"{module}.py", folder / module]
        mine = next((place.resolve() for place in beside if place.exists()), None)
        if mine is None:
            continue
        found = find_spec(module)
        places = [found.origin, *(found.submodule_search_locations or [])] if found else []
        if not any(place and Path(place).resolve().is_relative_to(mine) for place in places):
            raise RequestError(
                f'the config names the module "{module}", which is beside it, but Python finds '
                f"another one of that name ({next(filter(None, places), 'built in')}). Rename "
                f"{mine.name}."
            )


def _names(value: Any) -> Iterator[str]:
    """Yield the texts of the form "package.module:Name" in tables and lists."""
    if isinstance(value, Mapping):
        for key, below in value.items():
            if key not in ("table", "folder", "address", "device"):  # which may hold a colon, too
                yield from _names(below)
    elif isinstance(value, list):
        for each in value:
            yield from _names(each)
    elif isinstance(value, str):
        module, colon, name = value.partition("=")[0].partition(":")
        if colon and name.isidentifier() and all(p.isidentifier() for p in module.split(".")):
            yield value
