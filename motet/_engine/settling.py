"""The end of a round: uploads are combined without those of strangers that would spoil it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from motet._core import tree
from motet._core.aggregation.mean import Total
from motet._core.visible_text import excerpt
from motet._engine.backends.backend import Outcome
from motet._engine.finite import Adopted, adopt, upload_content
from motet._engine.run_spec import RunSpec
from motet.errors import CohortError, MotetError
from motet.method import RoundInfo

log = logging.getLogger("motet._engine")


def settle(
    setting: RunSpec, server: Any, outcome: Outcome, down: Any, info: RoundInfo
) -> tuple[Adopted, Outcome]:
    """Make the next server state, and say whose uploads are in it.

    Uploads from other machines may have the agreed form and still break the method's update, or
    make a state that is not finite. Such uploads are found one by one and rejected, and the others
    count. If every upload fails by itself, no client is at fault, and the round fails.

    Raises:
        CohortError: Too few uploads are left; nothing has changed.
    """
    if outcome.single is None:
        return adopt(setting, server, outcome, down, info), outcome
    left, first = outcome, _tried(setting, server, outcome, down, info)
    tried = first
    while tried.failed:
        reasons = _reasons(setting, server, left, down, info)
        if len(reasons) == len(left.replied):
            return first, outcome
        left = _without(setting, left, reasons or _largest(left))
        tried = _tried(setting, server, left, down, info)
    for client in left.rejected.keys() - outcome.rejected.keys():
        log.warning("round %d: %s rejected: %s", info.number + 1, client, left.rejected[client])
    if len(left.replied) < left.needed:
        raise CohortError(
            f"round {info.number + 1}: {len(left.replied)} usable replies, at least {left.needed} "
            f"needed (rejected {', '.join(sorted(left.rejected))})"
        )
    return tried, left


def _tried(setting: RunSpec, server: Any, outcome: Outcome, down: Any, info: RoundInfo) -> Adopted:
    """Combine uploads; an error is a failure with its reason."""
    try:
        return adopt(setting, server, outcome, down, info)
    except MotetError as reason:
        return Adopted(server, {}, excerpt(str(reason)))
    except Exception as reason:  # of a method that trusts its uploads
        log.debug("the uploads cannot be combined", exc_info=True)
        what = f"{type(reason).__name__}: {reason}"
        return Adopted(server, {}, excerpt(f"the uploads cannot be combined ({what})"))


def _reasons(
    setting: RunSpec, server: Any, outcome: Outcome, down: Any, info: RoundInfo
) -> dict[str, str]:
    """Say whose upload fails without any other, and why."""
    alone = {c: _tried(setting, server, _only(outcome, [c]), down, info) for c in outcome.replied}
    return {client: adopted.failed for client, adopted in alone.items() if adopted.failed}


def _largest(outcome: Outcome) -> dict[str, str]:
    """Name the largest upload, where uploads fail only together."""
    assert outcome.single is not None
    sizes = {client: _size(outcome.single(client)) for client in outcome.replied}
    client = max(sizes, key=lambda name: sizes[name])
    return {
        client: f"the uploads cannot be combined, and this is the largest ({sizes[client]:.2g})"
    }


def _size(partial: Any) -> float:
    if isinstance(partial, Total):
        return tree.largest(partial.value) / (partial.weight or 1.0)
    if isinstance(partial, Mapping):
        return max(tree.largest(upload_content(upload)) for upload in partial.values())
    return 0.0


def _without(setting: RunSpec, outcome: Outcome, reasons: Mapping[str, str]) -> Outcome:
    kept = [client for client in outcome.replied if client not in reasons]
    rejected = dict(sorted({**outcome.rejected, **reasons}.items()))
    total = None
    for client in kept:
        part = _part(outcome, client)
        total = part if total is None else setting.method.reduce.merge(total, part)
    return _replied(outcome, kept, total)._replace(rejected=rejected)


def _only(outcome: Outcome, clients: Sequence[str]) -> Outcome:
    (client,) = clients
    return _replied(outcome, clients, _part(outcome, client))


def _replied(outcome: Outcome, clients: Sequence[str], partial: Any) -> Outcome:
    large = {client: size for client, size in outcome.large.items() if client in clients}
    return outcome._replace(partial=partial, replied=tuple(clients), large=large)


def _part(outcome: Outcome, client: str) -> Any:
    assert outcome.single is not None
    return outcome.single(client)
