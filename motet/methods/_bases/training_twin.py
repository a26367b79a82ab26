"""Methods that train exactly as another one does, and differ only in how clients are served."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from motet.method import AnyMethod

# What only describes a method, or only serves clients: training never calls it.
SERVING = frozenset(
    {
        "adapt",
        "adapt_epochs",
        "adapt_plans",
        "adapt_steps",
        "after_broadcast",
        "after_local",
        "card",
        "check",
        "forward_only",
        "name",
        "one_network",
        "personalize",
        "predict",
        "reported",
        "studies",
        "trains_as",
        "tuned_phases",
    }
)


def twin(kind: type[AnyMethod], method: AnyMethod) -> AnyMethod:
    """Make the `kind` that trains as `method` does; the method itself if it trains its own way.

    A subclass trains as `kind` does only if it overrides nothing that training calls, so that one
    that changes the training is never served by another method's training.
    """
    if any(getattr(type(method), name) is not value for name, value in _training(kind).items()):
        return method
    chosen = (field.name for field in fields(kind) if field.name not in SERVING)
    return kind(**{name: getattr(method, name) for name in chosen})


def _training(kind: type[AnyMethod]) -> dict[str, Any]:
    """Gather what training may call: all of a class but its fields, and what is for serving."""
    left_out = SERVING | {field.name for field in fields(kind)}
    names = (name for name in dir(kind) if not name.startswith("__") and name not in left_out)
    return {name: getattr(kind, name) for name in names if name != "_abc_impl"}
