"""One client after another. Slow, obvious, and the oracle for every other backend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from motet import tree
from motet.admission import receive
from motet.backends.backend import Outcome, combine, naming
from motet.method import RoundInfo
from motet.setting import Point, Setting, down_for


@dataclass(frozen=True)
class Serial:
    """Runs the method's functions as they are written."""

    setting: Setting
    name: ClassVar[str] = "serial"

    def train(self, down: Any, info: RoundInfo) -> Outcome:
        """Run the cohort in order of client id, so that sums are reproducible."""
        parts = (self._train_one(down_for(down, c), c, info) for c in sorted(info.cohort))
        return combine(self.setting.method.reduce, parts)

    def predict(
        self, down: Any, info: RoundInfo, inputs: Mapping[str, Tensor], point: Point
    ) -> Iterator[tuple[str, Tensor]]:
        """Serve one client after another."""
        for client in inputs:
            personal = self.predictor(down, info, client, point)
            yield client, self.setting.answer(personal, inputs[client])

    def predictor(self, down: Any, info: RoundInfo, client: str, point: Point) -> Any:
        """Make one client's predictor."""
        setting = self.setting
        data = setting.data(client, setting.serving_plans(point), info.number)
        new = client not in setting.store
        kept = setting.client(client)
        with naming([client], info):
            return setting.predictor(down_for(down, client), kept, data, point=point, new=new)

    def _train_one(self, down: Any, client: str, info: RoundInfo) -> Outcome:
        setting = self.setting
        data = setting.work(client, info.number)
        kept = setting.client(client)
        with naming([client], info):
            up, kept = setting.method.client_update(down, kept, data, setting.task)
        setting.store.put(client, kept)
        received = receive(setting, info, down, [client], tree.stack([up]))
        return Outcome(
            partial=received.partial,
            bytes_down=tree.count_bytes(down),
            bytes_up=tree.count_bytes(up),
            gradients=setting.method.gradient_evaluations(down, data),
            replied=received.replied,
            lost=received.lost,
            rejected=received.rejected,
        )
