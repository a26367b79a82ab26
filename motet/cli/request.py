"""From a config file, flags and --set to the tables of one config."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from motet.config import overridden, parse_assignment, read_tables
from motet.config.overrides import toml_value

# In this order: naming a method or a partition comes before its fields.
FLAGS = {
    "method": "method.name",
    "lr": "method.lr",
    "epochs": "method.epochs",
    "steps": "method.steps",
    "batch_size": "method.batch_size",
    "data": "data.name",
    "table": "data.table",
    "folder": "data.folder",
    "client_column": "data.client",
    "target": "data.target",
    "partition": "data.partition.name",
    "clients": "data.partition.clients",
    "classes": "data.partition.classes",
    "alpha": "data.partition.alpha",
    "model": "model.name",
    "rounds": "run.rounds",
    "cohort": "run.cohort",
    "backend": "run.backend",
    "store": "run.store",
    "seed": "run.seed",
    "methods": "compare.methods",
    "seeds": "compare.seeds",
    "choose": "compare.choose",
    "evaluate_every": "run.evaluate_every",
    "tune": "compare.tune.trials",
    "tune_kind": "compare.tune.kind",
    "budget_gradients": "compare.budget.gradients",
    "budget_bytes": "compare.budget.bytes",
    "budget_seconds": "compare.budget.seconds",
}
NUMBERS = (
    "batch_size",
    "cohort",
)  # typed as text, because 4 and 0.2 and "none" mean different things


def requested(
    config: Path | None, flags: Mapping[str, Any], assignments: Iterable[str]
) -> dict[str, Any]:
    """Lay flags over a config file, and assignments over both."""
    tables = {} if config is None else read_tables(config)
    chosen = [
        (key, toml_value(flags[name]) if name in NUMBERS else flags[name])
        for name, key in FLAGS.items()
        if flags.get(name) is not None
    ]
    return overridden(tables, [*chosen, *(parse_assignment(text) for text in assignments)])
