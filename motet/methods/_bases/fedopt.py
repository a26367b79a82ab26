"""FedAvg with an optimizer at the server: what FedAvgM, FedAdam, FedYogi and FedAdagrad share.

The optimizer itself is a part that every averaging method has (`server_optimizer=`); these classes
only carry the papers' defaults and names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from motet.methods._fedavg import FedAvg
from motet.task import Task


@dataclass(frozen=True, kw_only=True)
class FedOpt(FedAvg):
    """The averaged change of a round is the server's gradient."""

    expected: ClassVar[type[Any]]  # the kind of optimizer that the method is named after

    def check(self, task: Task, clients: Sequence[str]) -> list[str]:
        return [*super().check(task, clients), *self.server_warnings()]

    def server_warnings(self) -> list[str]:
        """Warn where the server's optimizer makes this another method."""
        optimizer = self.server_optimizer
        if optimizer is None:
            return [f"{self.name} with server_optimizer=None is fedavg; leave it out."]
        if type(optimizer) is not self.expected:
            return [
                f"{self.name} steps with {self.expected.__name__}, but its server_optimizer is "
                f"{type(optimizer).__name__}; call it fedavg(server_optimizer=...)."
            ]
        if getattr(optimizer, "lr", None) == 0:
            return [f"{self.name} with a server learning rate of 0 never moves; give lr= above 0."]
        return []
