"""Who is judged on whose data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from motet.errors import RequestError, nearest
from motet.keys import Key


def judges_from_seed(clients: Sequence[str], seed: int, *, fixed_points: bool) -> dict[str, str]:
    """Draw a permutation of the clients.

    Without fixed points the clients are seated in a random ring and each takes its neighbour's
    data, which needs no second try.
    """
    if len(clients) < 2:
        raise RequestError(
            f"retarget moves data between clients and needs at least two; there are {len(clients)}."
        )
    listed = sorted(clients)
    drawn = [listed[i] for i in Key(seed).fold("retarget").numpy().permutation(len(listed))]
    if fixed_points:
        return dict(zip(listed, drawn, strict=True))
    return dict(zip(drawn, drawn[1:] + drawn[:1], strict=True))


def judges_from_pairs(clients: Sequence[str], pairs: Mapping[str, str]) -> dict[str, str]:
    """Complete `pairs` with the clients that keep their own data."""
    known = set(clients)
    for client in [*pairs, *pairs.values()]:
        if client not in known:
            raise RequestError(
                f'pairs names an unknown client "{client}"; {nearest(client, clients)}'
            )
    if set(pairs) != set(pairs.values()):
        unmatched = sorted(set(pairs) ^ set(pairs.values()))
        raise RequestError(
            "pairs must move every (val, test) pair to exactly one client, so the same clients "
            f"give and take; {', '.join(unmatched)} only gives or only takes."
        )
    return {client: client for client in clients} | dict(pairs)
