"""What is told to a sink: the same names and numbers for each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from motet.comparing.comparison import Look, Row
    from motet.evaluate import Evaluation
    from motet.federation import Round

Pair = tuple[str, int]  # label and seed
SPENT = ("bytes_up", "bytes_down", "gradients", "seconds")
LOOKED = ("mean", "std", "decile", "worst", "loss")
SCORED = ("mean", "weighted_mean", "std", "decile", "worst", "loss")
# By method: the name of the share of clients that do worse than under it.
HARMED = {"local": "test/harmed_vs_local", "fedavg-ft": "test/harmed_vs_fedavg_ft"}


def hyperparameters(done: Round) -> dict[str, bool | int | float | str]:
    """List what defines a run, by dotted name."""
    from motet.config.methods import method_to_dict

    setting, run = done.run.setting, done.run
    written = {
        "method": method_to_dict(setting.method),
        "run": {"rounds": setting.rounds, "cohort": run.cohort},
        "data": {"name": setting.federation.name, "clients": len(setting.federation.clients)},
    }
    return flat(written)


def tags(label: str, seed: int, done: Round) -> dict[str, str]:
    """Say what a run belongs to, for searching."""
    setting = done.run.setting
    return {
        "label": label,
        "seed": str(seed),
        "method": setting.method.name,
        "split_hash": setting.federation.hash,
    }


def of_round(done: Round, look: Look | None) -> dict[str, float]:
    """List the numbers of a round: what it took, and what the validation data said after it."""
    took = {f"round/{name}": float(getattr(done, name)) for name in SPENT}
    saw = {} if look is None else {f"val/{name}": getattr(look, name) for name in LOOKED}
    return took | saw


def of_row(row: Row) -> dict[str, float]:
    """List the numbers of a finished run: its test scores, and what all of it took."""
    scores = {f"test/{name}": getattr(row.evaluation, name) for name in SCORED}
    names = (*SPENT, "private_bytes")
    return scores | {f"cost/{name}": float(getattr(row.cost, name)) for name in names}


class Harms:
    """Finds the shares of clients harmed as soon as a run and its reference have finished."""

    def __init__(self, before: Iterable[Row] = ()) -> None:
        self.known: dict[Pair, Evaluation] = {(r.label, r.seed): r.evaluation for r in before}

    def add(self, row: Row) -> dict[Pair, dict[str, float]]:
        """Take in a finished run; return the shares that are known now and were not before."""
        pair, new = (row.label, row.seed), row.evaluation
        others = {pair: old for pair, old in self.known.items() if pair[1] == row.seed}
        self.known[pair] = new
        # Of two entries of a method, the first is the reference.
        references = {old.method: old for old in reversed(others.values()) if old.method in HARMED}
        found = {pair: {HARMED[name]: new.harmed(old) for name, old in references.items()}}
        if new.method in HARMED and new.method not in references:
            found |= {other: {HARMED[new.method]: old.harmed(new)} for other, old in others.items()}
        return {pair: shares for pair, shares in found.items() if shares}


def flat(tables: Mapping[str, Any], prefix: str = "") -> dict[str, bool | int | float | str]:
    """Write nested tables as one, by dotted name; lists become text.

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
