"""The predictor of a client that was not part of the federation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

if TYPE_CHECKING:  # a run makes predictors
    from motet._engine.federation import Run


@dataclass(frozen=True)
class Predictor:
    """The predictor of a client that was not part of the federation."""

    run: Run
    personal: Any

    def __repr__(self) -> str:
        return f"<Predictor for a new client, from {self.run!r}>"

    def predict(self, x: Any) -> Tensor:
        """Return class probabilities, or values."""
        setting = self.run.setting
        return setting.method.predict(self.personal, self.run._as_input(x), setting.task)

    def model(self) -> nn.Module:
        """Return the predictor as a plain `nn.Module`, where it is one network."""
        return self.run._module(self.personal)
