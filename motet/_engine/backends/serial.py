"""The serial backend: one client after another, the reference for every other backend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from motet._engine.backends.backend import Outcome, combine
from motet._engine.backends.client_work import (
    deliver,
    predict_alone,
    predictor_alone,
    train_clients,
)
from motet._engine.run_spec import Point, RunSpec
from motet.method import RoundInfo


@dataclass(frozen=True)
class Serial:
    """Runs the method's functions as they are written."""

    setting: RunSpec
    name: ClassVar[str] = "serial"
    plan: ClassVar[None] = None
    failures: ClassVar[tuple[Exception, ...]] = ()

    def train(self, down: Any, info: RoundInfo) -> Outcome:
        """Run the cohort in order of client id, so that sums are reproducible."""
        parts = (self._train_one(down, c, info) for c in sorted(info.cohort))
        return combine(self.setting.method.reduce, parts)

    def predict(
        self, down: Any, info: RoundInfo, inputs: Mapping[str, Tensor], point: Point
    ) -> Iterator[tuple[str, Tensor]]:
        """Serve one client after another."""
        for client in inputs:
            yield client, predict_alone(self.setting, down, info, client, inputs[client], point)

    def predictor(self, down: Any, info: RoundInfo, client: str, point: Point) -> Any:
        """Make one client's predictor."""
        return predictor_alone(self.setting, down, info, client, point)

    def _train_one(self, down: Any, client: str, info: RoundInfo) -> Outcome:
        work = train_clients(self.setting, down, info, [client])
        return deliver(self.setting, down, info, [client], work)
