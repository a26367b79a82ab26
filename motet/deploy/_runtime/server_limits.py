"""Deadlines, retries and the minimum number of clients of a server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from motet.config._values import read_fields
from motet.deploy._runtime.parcels import Scalar
from motet.deploy._runtime.replies import MOST_EXAMPLES
from motet.errors import RequestError


@dataclass(frozen=True, kw_only=True)
class ServerLimits:
    """The limits of a run; in a run config with hyphens, and `clients` separated by commas.

    Attributes:
        out: Run directory of the server.
        clients: Clients that may take part; (): any client.
        min_clients: Clients that must be online before a round, and reply in it.
        deadline_s: Seconds until a round continues without the clients that have not replied.
        attempts: Attempts at a round before the run stops.
        max_examples: The largest number of examples that a site may claim, which is its weight.
        evaluate_only: Whether to ask for scores on test data only, and train nothing.
        cross_site: Whether to also score each site's model at each site; trains nothing, either.
    """

    out: str
    clients: tuple[str, ...] = ()
    min_clients: int = 1
    deadline_s: float = 600.0
    attempts: int = 3
    max_examples: int = MOST_EXAMPLES
    evaluate_only: bool = False
    cross_site: bool = False

    def __post_init__(self) -> None:
        for name in ("min_clients", "deadline_s", "attempts", "max_examples"):
            if not getattr(self, name) > 0:
                raise RequestError(f"{name} must be above 0; got {getattr(self, name)}.")
        if self.clients and self.min_clients > len(self.clients):
            raise RequestError(
                f"min_clients={self.min_clients} is more than the {len(self.clients)} clients."
            )

    @classmethod
    def from_run_config(cls, run_config: Mapping[str, Scalar]) -> ServerLimits:
        """Read the limits; other keys are ignored."""
        names = [one.name for one in fields(cls) if one.name != "clients"]
        found = {name: run_config.get(name.replace("_", "-")) for name in names}
        table: dict[str, object] = {k: value for k, value in found.items() if value is not None}
        listed = str(run_config.get("clients", "")).split(",")
        table["clients"] = [name.strip() for name in listed if name.strip()]
        return read_fields(cls, table, "run config")
