"""From a data set to a federation: who gets which rows, and in which split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from motet.data.assignment import Assignment
from motet.data.chain import Chain
from motet.data.federation import Federation
from motet.data.partition import Partition, recipe_of
from motet.data.partition.base import Rows
from motet.data.partition.counts import Counts, encode, group_rows
from motet.data.raw import Raw
from motet.data.split import Cut, Split
from motet.keys import Key


class Allotment(NamedTuple):
    """Clients and their rows."""

    clients: tuple[str, ...]
    rows: Assignment


def divide(
    raw: Raw, partition: Partition, split: Split, *, name: str, seed: int, source: Mapping[str, Any]
) -> Federation:
    """Divide a data set among clients; the result is checked."""
    recipe = {
        "source": dict(source),
        "seed": seed,
        "partition": recipe_of(partition),
        "split": split.recipe(),
    }
    return federate(raw, allot(raw, partition, split, seed), name=name, recipe=recipe)


def federate(
    raw: Raw,
    allotment: Allotment,
    *,
    name: str,
    recipe: Mapping[str, Any],
    features: tuple[str, ...] | None = None,
) -> Federation:
    """Put data and allotment together; the result is checked."""
    return Federation(
        name=name,
        clients=allotment.clients,
        x=Chain.of([raw.x]),
        y=Chain.of([raw.y]),
        rows=allotment.rows,
        classes=raw.classes,
        labels=raw.labels,
        normalize=raw.normalize,
        features=features,
        recipe=recipe,
    ).check()


def allot(raw: Raw, partition: Partition, split: Split, seed: int) -> Allotment:
    """Decide who gets which rows."""
    key = Key(seed).fold("data")
    strata = partition.strata(raw, key)
    pool = raw.rows_of("train") if split.official else np.arange(len(raw.y))
    coarse = None if raw.coarse is None else raw.coarse[pool]
    parts = [pool[part] for part in partition.assign(strata[pool], key, coarse)]
    clients = partition.names(raw, parts)
    if split.official and len(raw.rows_of("val")):
        split = replace(split, val=0.0)
    cuts = [
        _cut(raw, rows, split, key.fold("split", client))
        for client, rows in zip(clients, parts, strict=True)
    ]
    if split.official:
        cuts = _with_official(raw, strata, parts, cuts, key)
    return Allotment(clients, Assignment.of(np.sort(cell) for cut in cuts for cell in cut))


def _cut(raw: Raw, rows: Rows, split: Split, key: Key) -> Cut:
    by_class = raw.classes is not None and raw.y.ndim == 1
    labels = np.asarray(raw.y[rows]) if by_class else np.zeros(len(rows), np.int64)
    return Cut(*(rows[positions] for positions in split.cut(labels, key)))


def _with_official(
    raw: Raw, strata: NDArray[np.int64], parts: list[Rows], cuts: list[Cut], key: Key
) -> list[Cut]:
    """Add the rows that the data themselves hold out, in each client's own mix of strata."""
    val = share_held_out(strata, parts, raw.rows_of("val"), key.fold("official", "val"))
    test = share_held_out(strata, parts, raw.rows_of("test"), key.fold("official", "test"))
    return [
        Cut(cut.train, np.concatenate([cut.val, more_val]), np.concatenate([cut.test, more_test]))
        for cut, more_val, more_test in zip(cuts, val, test, strict=True)
    ]


def share_held_out(
    strata: NDArray[np.int64], parts: list[Rows], held: Rows, key: Key
) -> list[Rows]:
    """Share `held` rows among clients: each stratum in proportion to what the clients hold of it.

    What rounding takes from a client in one stratum it is first in line for in the next, so that
    its total is right as well. Rows of a stratum that nobody holds go to nobody.
    """
    codes, stock = encode(strata)
    holder = np.full(len(strata), -1, np.int64)
    for client, rows in enumerate(parts):
        holder[rows] = client
    held_by = np.where(holder >= 0, codes, -1)
    owner, credit = np.full(len(held), -1, np.int64), np.zeros(len(parts))
    by_kind = zip(group_rows(held_by, len(stock)), group_rows(codes[held], len(stock)), strict=True)
    for kind, (holdings, places) in enumerate(by_kind):
        if len(holdings) and len(places):
            clients, have = np.unique(holder[holdings], return_counts=True)
            counts, credit[clients] = _share_with_credit(len(places), have, credit[clients])
            shuffled = key.fold(kind).numpy().permutation(places)
            owner[shuffled] = np.repeat(clients, counts)
    return [held[places] for places in group_rows(owner, len(parts))]


def _share_with_credit(
    total: int, weights: NDArray[np.int64], credit: NDArray[np.float64]
) -> tuple[Counts, NDArray[np.float64]]:
    """Share `total` by weights, the rest to those who are owed most; return shares and credit."""
    exact = total * weights / weights.sum()
    shares = np.floor(exact).astype(np.int64)
    owed = credit + exact - shares
    first = np.argsort(-owed, kind="stable")[: total - int(shares.sum())]
    shares[first] += 1
    owed[first] -= 1
    return shares, owed
