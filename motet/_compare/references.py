"""The entries of a comparison: the requested methods, and the references to compare them with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from motet._engine.federation import start
from motet.data import Federation
from motet.data._remarks import remarks
from motet.errors import MotetError, RequestError
from motet.method import AnyMethod
from motet.methods._fedavg import FedAvg
from motet.methods._fedavg_ft import FedAvgFT
from motet.methods._local import Local
from motet.task import Task

# Every claim about personalization is relative to these.
REFERENCES: tuple[type[AnyMethod], ...] = (Local, FedAvg, FedAvgFT)
# An added reference copies these fields from the first method.
SHARED_FIELDS = (
    "optimizer",
    "epochs",
    "steps",
    "batch_size",
    "schedule",
    "adapt_epochs",
    "adapt_steps",
)


def labelled(methods: Sequence[AnyMethod]) -> dict[str, AnyMethod]:
    """Label methods by name; the second one of the same name is labelled "fedper (2)"."""
    entries: dict[str, AnyMethod] = {}
    for method in methods:
        same = sum(other.name == method.name for other in entries.values())
        entries[f"{method.name} ({same + 1})" if same else method.name] = method
    return entries


def missing_references(asked: Mapping[str, AnyMethod]) -> dict[str, AnyMethod]:
    """Create the references that are missing, with the training settings of the first method."""
    if not asked:
        raise RequestError("compare needs at least one method; got none.")
    first = next(iter(asked.values()))
    shared = {name: getattr(first, name) for name in SHARED_FIELDS}
    if "adapt_steps" in vars(type(first)).get("__annotations__", {}):
        shared["adapt_steps"] = None  # steps of a kind of the method's own
    present = {type(method) for method in asked.values()}
    return {kind.name: kind(**shared) for kind in REFERENCES if kind not in present}


def why_unsuited(method: AnyMethod, task: Task, data: Federation) -> str:
    """Return why a method does not suit this data: its own error or first warning, else ""."""
    try:
        warnings = start(method, task, data, rounds=0).warnings
    except MotetError as refusal:
        return str(refusal)
    # Remarks about the data hold for every method; a warning of its own means that the method
    # would silently behave like a different one.
    own = (warning for warning in warnings if warning not in remarks(data))
    return next(own, "")
