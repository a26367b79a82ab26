"""Overrides of a config: flags, and `--set method.epochs=2`."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

from motet.errors import RequestError

# Naming another method, data set, partition or model starts its table afresh: what the file says
# about the old one does not fit the new one.
TAGS = (
    "method.name",
    "data.name",
    "data.table",
    "data.folder",
    "data.partition.name",
    "model.name",
)


def overridden(tables: Mapping[str, Any], choices: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Lay choices, each a dotted key and a value, over the tables of a config.

    Args:
        tables: Tables of a config, which stay as they are.
        choices: Keys and values; later ones win. A name clears what the tables say about another,
            wherever it stands among the choices, and never another choice.

    Returns:
        The tables with the choices.

    Example:
        >>> overridden({"run": {"rounds": 50, "seed": 1}}, [("run.rounds", 2)])
        {'run': {'rounds': 2, 'seed': 1}}
        >>> overridden({}, [("model.init", "runs/a"), ("model.name", "mlp")])
        {'model': {'name': 'mlp', 'init': 'runs/a'}}
    """
    changed = copy.deepcopy(dict(tables))
    for key, value in sorted(choices, key=_turn):
        *path, last = key.split(".")
        table = _table_at(changed, path)
        if key in TAGS and table.get(last) != value:
            table.clear()
        table[last] = value
    return changed


def _turn(choice: tuple[str, Any]) -> int:
    """Put names first, outer ones before inner ones; the rest keeps its order."""
    key, _ = choice
    return key.count(".") if key in TAGS else len(TAGS)


def parse_assignment(text: str) -> tuple[str, Any]:
    """Read "method.optimizer.lr=0.05"; the value is TOML, and what is not TOML is text.

    Args:
        text: `section.key=value`.

    Returns:
        The key and the value.

    Raises:
        RequestError: The text is not of that form.

    Example:
        >>> parse_assignment("model.hidden=[32, 16]"), parse_assignment("method.optimizer=adam")
        (('model.hidden', [32, 16]), ('method.optimizer', 'adam'))
    """
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or "." not in key or not all(key.split(".")):
        raise RequestError(
            f'--set expects section.key=value, such as method.epochs=2; got "{text}".'
        )
    return key, toml_value(value.strip())


def toml_value(text: str) -> Any:
    """Read a TOML value, or take the text as it is."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):  # also numbers and nesting that are too large
        return text


def _table_at(tables: dict[str, Any], path: list[str]) -> dict[str, Any]:
    for step in path:
        below = tables.setdefault(step, {})
        if not isinstance(below, dict):
            # `optimizer = "adam"` is short for a table that says no more.
            below = tables[step] = {"name" if step == "partition" else "kind": below}
        tables = below
    return tables
