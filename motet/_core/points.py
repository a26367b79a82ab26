"""The points of a round at which a client can be scored, with their names in plain words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Point = Literal["after_broadcast", "after_local", "after_adapt"]
POINTS: tuple[Point, ...] = ("after_broadcast", "after_local", "after_adapt")
MEANING: Mapping[str, str] = {
    "after_broadcast": "on arrival of the server's model, before local training",
    "after_local": "after local training, before the server combines",
    "after_adapt": "as served, after the method's own adaptation",
}


IN_SHORT: Mapping[str, str] = {
    "after_broadcast": "with the server's model before local training",
    "after_local": "after local training",
    "after_adapt": "with each client's final model",
}


def named(points: Mapping[str, str]) -> str:
    """Describe the point of a table in a few plain words, given each method's point by label.

    >>> named({"fedavg": "after_adapt", "fedper": "after_adapt"})
    "with each client's final model"
    >>> named({"fedavg": "after_adapt", "fedala": "after_broadcast"})
    'each method as its authors report it'
    """
    different = set(points.values())
    return (
        IN_SHORT[different.pop()] if len(different) == 1 else "each method as its authors report it"
    )


def explained(points: Mapping[str, str]) -> str:
    """Say in a sentence at which point each method was scored, and what that means.

    >>> explained({"fedavg": "after_adapt"})
    "Scored as served, after the method's own adaptation (after_adapt)."
    >>> explained({"fedavg": "after_adapt", "fedala": "after_broadcast"}).split(". ")[0]
    "Scored on arrival of the server's model, before local training (after_broadcast): fedala"
    """
    by_point = {point: [one for one, at in points.items() if at == point] for point in POINTS}
    found = sorted((p for p in POINTS if by_point[p]), key=lambda point: len(by_point[point]))
    if len(found) == 1:
        return f"Scored {MEANING[found[0]]} ({found[0]})."
    who = [", ".join(by_point[point]) for point in found[:-1]] + ["all others"]
    each = zip(found, who, strict=True)
    return " ".join(f"Scored {MEANING[point]} ({point}): {labels}." for point, labels in each)
