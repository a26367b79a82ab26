"""Groups of clients that are not independent: hospitals of one owner, wards of one hospital.

Clients of a group may gain alike for a reason of the group's own. A test of the mean that counts
them one by one is too sure: it must count groups. The mean itself stays that over clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from motet.errors import RequestError, nearest

Groups = Mapping[str, str]  # client -> group; a client that is not in it is a group of its own


def group_names(clients: Sequence[str], groups: Groups) -> list[str]:
    """Return the group of each client, for clients in none their own.

    >>> group_names(["a", "b", "c"], {"a": "north", "b": "north"})
    ['group north', 'group north', 'client c']
    """
    return [
        f"group {groups[client]}" if client in groups else f"client {client}" for client in clients
    ]


def over_groups(values: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """Turn gains [clients, seeds] into one row per group, with the same mean over rows.

    A group of three clients counts three times in the mean over clients, and its row has the
    error of that: `m + w (g - m)`, with the group's mean `g` and weights `w` that are 1 on average.
    """
    distinct, place = np.unique(np.asarray(names), return_inverse=True)
    if len(distinct) == len(names) or not values.size:
        return values
    counts = np.bincount(place).astype(float)
    sums = np.zeros((len(distinct), values.shape[1]))
    np.add.at(sums, place, values)
    mean = values.mean(0)
    return np.asarray(mean + (sums - counts[:, None] * mean) / counts.mean())


def check_groups(groups: Groups, clients: Iterable[str]) -> dict[str, str]:
    """Return the groups; refuse a client that the federation does not have."""
    known = set(clients)
    for client in groups:
        if client not in known:
            raise RequestError(
                f'site groups name the client "{client}", which the data do not have; '
                f"{nearest(client, known)}."
            )
    return dict(groups)
