"""Permutations of clients for `Federation.retarget`: whose data each client is evaluated on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from motet._core.keys import Key
from motet.errors import RequestError, nearest


def judges_from_seed(clients: Sequence[str], seed: int, *, fixed_points: bool) -> dict[str, str]:
    """Draw a permutation of the clients.

    Without fixed points the clients form a random ring and each takes its neighbour's data, so
    that no draw has to be rejected.
    """
    if len(clients) < 2:
        raise RequestError(
            f"retarget moves data between clients and needs at least two, got {len(clients)}."
        )
    listed = sorted(clients)
    drawn = [listed[i] for i in Key(seed).fold("retarget").numpy().permutation(len(listed))]
    if fixed_points:
        return dict(zip(listed, drawn, strict=True))
    return dict(zip(drawn, drawn[1:] + drawn[:1], strict=True))


def judges_from_pairs(clients: Sequence[str], pairs: Mapping[str, str]) -> dict[str, str]:
    """Complete `pairs` with the clients that keep their own data, and check them."""
    known = set(clients)
    for client in [*pairs, *pairs.values()]:
        if client not in known:
            raise RequestError(
                f'retarget names an unknown client "{client}"; {nearest(client, clients)}.'
            )
    if set(pairs) != set(pairs.values()):
        unmatched = sorted(set(pairs) ^ set(pairs.values()))
        raise RequestError(
            "the pairs of retarget must be a permutation: each client appears once on the left and "
            f"once on the right; on one side only: {', '.join(unmatched)}."
        )
    return {client: client for client in clients} | dict(pairs)
