"""The names and numbers that every sink records."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from motet._engine.evaluation import Evaluation
    from motet._engine.federation import Round
    from motet._engine.results import Look, Row

Pair = tuple[str, int]  # label and seed
SPENT = ("bytes_up", "bytes_down", "gradients", "seconds")
LOOKED = ("mean", "std", "decile", "worst", "loss")
SCORED = ("mean", "weighted_mean", "std", "decile", "worst", "loss")
# Reference method -> metric name of the share of clients that do worse than with it.
HARMED = {"local": "test/harmed_vs_local", "fedavg-ft": "test/harmed_vs_fedavg_ft"}


def hyperparameters(done: Round) -> dict[str, bool | int | float | str]:
    """Return the hyperparameters of a run, by dotted name."""
    from motet.config._methods import (
        method_to_dict,
    )  # loads torch, which a sink alone does not need

    setting, run = done.run.setting, done.run
    written = {
        "method": method_to_dict(setting.method),
        "run": {"rounds": setting.rounds, "cohort": run.cohort},
        "data": {"name": setting.federation.name, "clients": len(setting.federation.clients)},
    }
    return flat(written)


def tags(label: str, seed: int, done: Round) -> dict[str, str]:
    """Return tags for filtering runs."""
    setting = done.run.setting
    return {
        "label": label,
        "seed": str(seed),
        "method": setting.method.name,
        "split_hash": setting.federation.hash,
    }


def of_round(done: Round, look: Look | None) -> dict[str, float]:
    """Return the numbers of a round: its cost, and validation scores if there are any."""
    took = {f"round/{name}": float(getattr(done, name)) for name in SPENT}
    saw = {} if look is None else {f"val/{name}": getattr(look, name) for name in LOOKED}
    also = {} if look is None else {f"val/{name}": mean for name, mean in look.also.items()}
    return took | _discarded(done) | saw | _named(also)


def _discarded(done: Round) -> dict[str, float]:
    """Count the updates of a round that were not used."""
    counted = {name: float(len(getattr(done, name))) for name in ("lost", "rejected", "diverged")}
    return {f"round/{name}": n for name, n in counted.items()} | {
        "round/failed": float(bool(done.failed))
    }


def of_row(row: Row) -> dict[str, float]:
    """Return the numbers of a finished run: test scores and total cost."""
    scores = {f"test/{name}": getattr(row.evaluation, name) for name in SCORED}
    names = (*SPENT, "private_bytes")
    scores["test/diverged"] = float(len(row.evaluation.diverged))
    scores |= _named({f"test/{table.metric}": table.mean for table in row.evaluation.also})
    return scores | {f"cost/{name}": float(getattr(row.cost, name)) for name in names}


def _named(values: Mapping[str, float]) -> dict[str, float]:
    """Write the names of metrics with the characters that every sink accepts."""
    return {re.sub(r"[^\w/. -]", "_", name): value for name, value in values.items()}


class HarmedShares:
    """Computes shares of harmed clients once a run and its reference have both finished."""

    def __init__(self, before: Iterable[Row] = ()) -> None:
        self.known: dict[Pair, Evaluation] = {(r.label, r.seed): r.evaluation for r in before}

    def add(self, row: Row) -> dict[Pair, dict[str, float]]:
        """Add a finished run; return the shares that it made known."""
        pair, new = (row.label, row.seed), row.evaluation
        others = {pair: old for pair, old in self.known.items() if pair[1] == row.seed}
        self.known[pair] = new
        # If a method has several entries, the first is the reference.
        references = {old.method: old for old in reversed(others.values()) if old.method in HARMED}
        found = {pair: {HARMED[name]: new.harmed(old) for name, old in references.items()}}
        if new.method in HARMED and new.method not in references:
            found |= {other: {HARMED[new.method]: old.harmed(new)} for other, old in others.items()}
        return {pair: shares for pair, shares in found.items() if shares}


def flat(tables: Mapping[str, Any], prefix: str = "") -> dict[str, bool | int | float | str]:
    """Flatten nested tables to dotted names; lists become text.

    >>> flat({"lr": 0.1, "optimizer": {"name": "sgd"}, "personal": ["head"], "mu": None})
    {'lr': 0.1, 'optimizer.name': 'sgd', 'personal': "['head']", 'mu': 'None'}
    """
    found: dict[str, bool | int | float | str] = {}
    for key, value in tables.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value if isinstance(value, bool | int | float) else str(value)
    return found
