"""The run as its site knows it: a federation of one, and what the server sent last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from motet._engine.backends.serial import Serial
from motet._engine.federation import Run
from motet._engine.run_spec import RunSpec
from motet.method import RoundInfo


@dataclass
class SiteRun(Run):
    """Serves from a message that was received, instead of from the state of a server."""

    down: Any = None

    @classmethod
    def of(cls, setting: RunSpec, down: Any, rounds_done: int) -> SiteRun:
        """Make the run of a site after some rounds."""
        return cls(setting, Serial(setting), 1.0, None, rounds_done=rounds_done, down=down)

    def _served(self, clients: tuple[str, ...]) -> tuple[Any, RoundInfo]:
        return self.down, self.setting.info(self.rounds_done, clients, serving=True)
