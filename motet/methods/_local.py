"""Local: every client trains alone. Every claim about personalization is relative to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from motet.method import Card
from motet.methods._bases.partial_sharing import PartialSharing
from motet.task import Task


@dataclass(frozen=True, kw_only=True)
class Local(PartialSharing):
    """Nothing is shared: a client trains its own model, from a common start, when sampled.

    Example:
        >>> import motet
        >>> motet.Local().name
        'local'
    """

    name: ClassVar[str] = "local"
    card: ClassVar[Card] = Card(
        title="Local",
        paper="(baseline)",
        year=0,
        link="",
        idea="Every client trains alone.",
        shared="nothing",
        private="the whole model",
        down="0",
        up="0",
        new_client="trains from the common start on its own data",
    )

    def personal_names(self, task: Task) -> frozenset[str]:
        return frozenset(task.names)
