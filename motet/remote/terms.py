"""How patient a server is, and with whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from motet.config.values import read_fields
from motet.errors import RequestError
from motet.remote.parcels import Scalar


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The terms of a run; in a run config with hyphens, and `clients` separated by commas.

    Attributes:
        out: Run directory of the server.
        clients: Everybody who may take part; (): whoever comes.
        min_clients: How many must be there before a round begins, and be heard in it.
        deadline_s: Seconds after which a round goes on without those that are still silent.
        attempts: How often a round is tried before the run stops.
    """

    out: str
    clients: tuple[str, ...] = ()
    min_clients: int = 1
    deadline_s: float = 600.0
    attempts: int = 3

    def __post_init__(self) -> None:
        for name in ("min_clients", "deadline_s", "attempts"):
            if not getattr(self, name) > 0:
                raise RequestError(f"{name} must be above 0; got {getattr(self, name)}.")
        if self.clients and self.min_clients > len(self.clients):
            raise RequestError(
                f"min_clients={self.min_clients} is more than the {len(self.clients)} clients."
            )

    @classmethod
    def from_run_config(cls, run_config: Mapping[str, Scalar]) -> Terms:
        """Read the terms; keys that are not theirs are somebody else's."""
        names = ("out", "min-clients", "deadline-s", "attempts")
        table: dict[str, object] = {
            name.replace("-", "_"): run_config[name] for name in names if name in run_config
        }
        listed = str(run_config.get("clients", "")).split(",")
        table["clients"] = [name.strip() for name in listed if name.strip()]
        return read_fields(cls, table, "run config")
