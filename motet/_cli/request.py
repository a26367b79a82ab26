"""The tables of a config, from a config file, flags and --set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from motet._core.option_table import ROWS, OneOrMore, Row, Toml
from motet.config import overridden, parse_assignment, read_tables
from motet.config._files import with_modules
from motet.config._overrides import toml_value
from motet.config._run_section import RunChoice
from motet.errors import RequestError
from motet.method import AnyMethod


def requested(
    config: Path | None, flags: Mapping[str, Any], assignments: Iterable[str]
) -> dict[str, Any]:
    """Apply flags (by name of parameter) to a config file, and assignments to the result."""
    tables = {} if config is None else read_tables(config)
    chosen = [
        (row.key, _value(row, flags[row.name], tables))
        for row in ROWS
        if row.key is not None and flags.get(row.name) not in (None, [])
    ]
    asked = overridden(tables, [*chosen, *(parse_assignment(text) for text in assignments)])
    return with_modules(asked, Path.cwd())


def require_training(run: RunChoice, methods: Iterable[AnyMethod]) -> None:
    """Refuse no rounds and no epochs: the table would be about untrained models."""
    if run.rounds < 1:
        raise RequestError(f"run.rounds must be 1 or more; got {run.rounds}.", option="run.rounds")
    for method in methods:
        # A method with several phases may leave one out. None: as many as the other phase has.
        phases = {f.name: getattr(method, f.name) for f in fields(method)}
        others = [
            n for name, n in phases.items() if name.endswith("_epochs") and name[:5] != "adapt"
        ]
        if phases.get("epochs") == 0 and not any(others):
            raise RequestError(
                f"epochs must be 1 or more, or {type(method).__name__} would not train; got 0.",
                option="method.epochs",
            )
        if phases.get("steps") == 0:
            raise RequestError(
                f"steps must be 1 or more, or {type(method).__name__} would not train; got 0.",
                option="method.steps",
            )
        if getattr(phases.get("optimizer"), "lr", None) == 0:
            raise RequestError(
                f"lr must be above 0, or {type(method).__name__} would not train; got 0.0.",
                option="method.optimizer.lr",
            )


def _value(row: Row, given: Any, tables: Mapping[str, Any]) -> Any:
    """Return the value of a flag; a flag that may be repeated adds to the list of the file."""
    if row.type is Toml:
        return toml_value(given)
    if row.type is OneOrMore:
        different = list(dict.fromkeys(given))
        return different[0] if len(different) == 1 else different
    if row.type != list[str] or row.key is None:
        return given
    section, _, key = row.key.partition(".")
    table = tables.get(section)
    before = table.get(key) if isinstance(table, Mapping) else None
    if isinstance(before, Mapping):
        pairs = (text.rpartition("=") for text in given)
        return {**before, **{name: value for name, _, value in pairs}}
    return [*before, *given] if isinstance(before, list) else given
