"""Clients that take part: waiting for them, and letting new ones join a run."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from motet._core import tree
from motet._engine.run_spec import RunSpec
from motet.deploy._runtime.rehearsal import first_server
from motet.deploy._runtime.server_limits import ServerLimits
from motet.deploy._runtime.transport import Transport
from motet.errors import CohortError

POLL_S = 1.0  # between two looks at who is there

log = logging.getLogger("motet.deploy._runtime")


def wait_for(
    transport: Transport, limits: ServerLimits, wanted: Callable[[str], bool] = lambda _: True
) -> tuple[str, ...]:
    """Wait until enough wanted clients are there, and return all of them that are."""
    end = time.monotonic() + limits.deadline_s
    while True:
        present = tuple(client for client in transport.present() if wanted(client))
        if len(present) >= limits.min_clients:
            return present
        log.info("waiting for clients: %d of %d online", len(present), limits.min_clients)
        if time.monotonic() >= end:
            raise CohortError(
                f"{limits.min_clients} clients are needed, and {len(present)} connected within "
                f"{limits.deadline_s:g} s: {', '.join(present) or 'none'}. Start their sites, or "
                "lower min-clients. Started again, the run continues where it stopped."
            )
        time.sleep(min(POLL_S, limits.deadline_s))


def can_join(before: RunSpec, after: RunSpec) -> bool:
    """Return whether a server's state has room for additional clients.

    A method that keeps something per client (a model each, a row of affinities) has none.
    """
    old, new = (dict(tree.flatten(first_server(setting))) for setting in (before, after))
    return {n: leaf.shape for n, leaf in old.items()} == {n: leaf.shape for n, leaf in new.items()}
