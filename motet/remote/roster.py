"""Who takes part: those who are there, and those who join while a run is under way."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from motet import tree
from motet.errors import CohortError
from motet.remote.rehearsal import first_server
from motet.remote.terms import Terms
from motet.remote.transport import Transport
from motet.setting import Setting

POLL_S = 1.0  # between two looks at who is there

log = logging.getLogger("motet.remote")


def wait_for(
    transport: Transport, terms: Terms, wanted: Callable[[str], bool] = lambda _: True
) -> tuple[str, ...]:
    """Wait until enough wanted clients are there, and return all of them that are."""
    end = time.monotonic() + terms.deadline_s
    while True:
        present = tuple(client for client in transport.present() if wanted(client))
        if len(present) >= terms.min_clients:
            return present
        log.info("waiting for clients: %d of %d online", len(present), terms.min_clients)
        if time.monotonic() >= end:
            raise CohortError(
                f"{terms.min_clients} clients are needed, and {len(present)} came within "
                f"{terms.deadline_s:g} s: {', '.join(present) or 'nobody'}. Start their sites, or "
                "lower min-clients. Started again, the run goes on where it is."
            )
        time.sleep(min(POLL_S, terms.deadline_s))


def can_join(before: Setting, after: Setting) -> bool:
    """Tell whether a server's state has room for clients that nobody has named.

    A method that keeps something per client (a model each, a row of affinities) has none.
    """
    old, new = (dict(tree.flatten(first_server(setting))) for setting in (before, after))
    return {n: leaf.shape for n, leaf in old.items()} == {n: leaf.shape for n, leaf in new.items()}
