"""The entries of a comparison: what was asked for, and what every claim is relative to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from motet.data import Federation
from motet.errors import MotetError, RequestError
from motet.federation import start
from motet.method import AnyMethod
from motet.methods.fedavg import FedAvg
from motet.methods.fedavg_ft import FedAvgFT
from motet.methods.local import Local
from motet.task import Task

# Every claim about personalization is relative to these.
REFERENCES: tuple[type[AnyMethod], ...] = (Local, FedAvg, FedAvgFT)
# What a reference that nobody asked for takes over from the first method.
SHARED_FIELDS = ("optimizer", "epochs", "steps", "batch_size", "schedule", "adapt_epochs")


def labelled(methods: Sequence[AnyMethod]) -> dict[str, AnyMethod]:
    """Name methods; a second one of the same name is "fedper (2)"."""
    entries: dict[str, AnyMethod] = {}
    for method in methods:
        same = sum(other.name == method.name for other in entries.values())
        entries[f"{method.name} ({same + 1})" if same else method.name] = method
    return entries


def missing_references(asked: Mapping[str, AnyMethod]) -> dict[str, AnyMethod]:
    """Make the references that were not asked for, trained as the first method is."""
    if not asked:
        raise RequestError("compare needs at least one method; none came.")
    first = next(iter(asked.values()))
    shared = {name: getattr(first, name) for name in SHARED_FIELDS}
    present = {type(method) for method in asked.values()}
    return {kind.name: kind(**shared) for kind in REFERENCES if kind not in present}


def why_unsuited(method: AnyMethod, task: Task, data: Federation) -> str:
    """Say why a method makes no sense here: it refuses, or would silently be another one."""
    try:
        warnings = start(method, task, data, rounds=0).warnings
    except MotetError as refusal:
        return str(refusal)
    return warnings[0] if warnings else ""
