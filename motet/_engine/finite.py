"""The check that server states and private states are finite before they replace old ones.

Both follow one rule: what is not finite is not kept. The old state stays, and the round says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from motet._core import tree
from motet._core.aggregation.robust import Upload
from motet._engine.run_spec import RunSpec
from motet.errors import NOT_FINITE
from motet.method import RoundInfo
from motet.privacy._uploads import finish_reduction

NAMED = 5  # clients that a reason names
NEARLY = 1e-3  # of the largest upload: what is larger than this share of it is named, too


class Arrived(Protocol):
    """The part of a backend's outcome that the server uses."""

    @property
    def partial(self) -> Any:
        """Of the method's reduction; None without replies."""
        ...

    @property
    def replied(self) -> tuple[str, ...]:
        """Clients whose uploads are in it."""
        ...

    @property
    def large(self) -> Mapping[str, float]:
        """Uploads that are suspiciously large, and how large."""
        ...


class Adopted(NamedTuple):
    """What became of a server state after a round.

    Attributes:
        server: The new state, or the old one.
        notes: What the method wants remembered.
        failed: Why the old state stayed although there were uploads; "" if it did not.
    """

    server: Any
    notes: Mapping[str, Any]
    failed: str


def adopt(setting: RunSpec, server: Any, arrived: Arrived, down: Any, info: RoundInfo) -> Adopted:
    """Combine the uploads of a round, and replace the server state if all of it is finite."""
    if arrived.partial is None:
        return Adopted(server, {}, "")
    method, heard = setting.method, info._replace(cohort=arrived.replied)
    combined = finish_reduction(method.reduce, arrived.partial, down, info)
    spoiled = tree.not_finite(combined)
    if spoiled:
        return _refused(server, arrived, f"the combined upload {NOT_FINITE} in {spoiled}")
    new = method.server_update(server, combined, heard, setting.task)
    spoiled = tree.not_finite(new)
    if spoiled:
        return _refused(server, arrived, f"the new server state {NOT_FINITE} in {spoiled}")
    return Adopted(new, method.notes(new, combined, heard), "")


def finite_rows(
    clients: Sequence[str], after: Any, before: Callable[[Sequence[str]], Any]
) -> tuple[Any, dict[str, str]]:
    """Choose what a stack of clients keeps, row by row.

    Args:
        clients: One per row.
        after: Their new states, stacked.
        before: Reads the old states of some of them, stacked.

    Returns:
        What is kept, and why the old state is, by client.
    """
    if tree.is_finite(after):
        return after, {}
    reasons = not_finite_rows(clients, after)
    if len(reasons) == len(clients):
        return before(clients), reasons
    rows = torch.tensor([i for i, client in enumerate(clients) if client in reasons])

    def put_back(leaf: Tensor, old: Tensor) -> Tensor:
        return leaf.index_copy(0, rows, old.to(leaf.dtype))

    return tree.tree_map(put_back, after, before([clients[i] for i in rows.tolist()])), reasons


def not_finite_rows(clients: Sequence[str], stacked: Any) -> dict[str, str]:
    """Say which rows of a stack are not finite, and the first leaf of each that is not."""
    named = [(name, leaf) for name, leaf in tree.flatten(stacked) if leaf.is_floating_point()]
    found = {
        client: f"{tree.readable(name) or 'a number'} {NOT_FINITE}"
        for name, leaf in reversed(named)  # so that the first of several is the one reported
        for client, row in zip(clients, leaf, strict=True)
        if not row.isfinite().all()
    }
    return {client: found[client] for client in clients if client in found}


def _refused(server: Any, arrived: Arrived, reason: str) -> Adopted:
    return Adopted(server, {}, f"{reason}{_blamed(_sizes(arrived))}")


def _sizes(arrived: Arrived) -> Mapping[str, float]:
    """Return how large uploads are: of all where they are kept apart, else of suspicious ones."""
    if isinstance(arrived.partial, Mapping):
        return {client: tree.largest(upload_content(up)) for client, up in arrived.partial.items()}
    return arrived.large


def upload_content(upload: Any) -> Any:
    """Return the tensors of an upload that a reduction keeps apart."""
    return upload.content if isinstance(upload, Upload) else upload


def _blamed(sizes: Mapping[str, float]) -> str:
    """Name those who have sent the largest numbers."""
    most = max(sizes.values(), default=0.0)
    named = [client for client in sorted(sizes) if sizes[client] >= NEARLY * most]
    if not named:
        return ""
    if len(named) == 1:
        return f"; the largest upload is from {named[0]} ({most:.2g})"
    more = f" and {len(named) - NAMED} more" if len(named) > NAMED else ""
    return f"; the largest uploads are from {', '.join(named[:NAMED])}{more} (up to {most:.2g})"
