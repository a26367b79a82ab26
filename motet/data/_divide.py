"""Division of a data set into a federation: the rows of each client and split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from motet._core.keys import Key
from motet.data._assignment import Assignment
from motet.data._chain import Chain
from motet.data._federation import Federation
from motet.data._partition import Partition, recipe_of
from motet.data._partition.base import Rows
from motet.data._partition.counts import Counts, encode, group_rows
from motet.data._raw import Raw
from motet.data._split import Split


class Allotment(NamedTuple):
    """Clients and their rows."""

    clients: tuple[str, ...]
    rows: Assignment


def divide(
    raw: Raw,
    partition: Partition,
    split: Split,
    *,
    name: str,
    seed: int,
    source: Mapping[str, Any],
    subset: Mapping[str, Any] | None = None,
) -> Federation:
    """Divide a data set among clients and check the result."""
    recipe = {
        "source": dict(source),
        "seed": seed,
        "partition": recipe_of(partition),
        "split": split.recipe(),
        **({"subset": dict(subset)} if subset else {}),
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
    """Build a federation from data and an allotment, and check it."""
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
        survival=raw.survival,
    ).check()


def allot(raw: Raw, partition: Partition, split: Split, seed: int) -> Allotment:
    """Assign rows to clients and splits."""
    key = Key(seed).fold("data")
    strata = partition.strata(raw, key)
    pool = raw.rows_of("train") if split.official else np.arange(len(raw.y))
    coarse = None if raw.coarse is None else raw.coarse[pool]
    parts = [pool[part] for part in partition.assign(strata[pool], key, coarse)]
    owner = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    names = partition.names(raw, parts)
    return _cut(raw, strata, names, np.concatenate(parts), owner, split, key)


def allot_sites(
    raw: Raw, site: NDArray[np.int64], names: Sequence[str], split: Split, seed: int
) -> Allotment:
    """Assign rows to the sites that they name by number, as `Natural` does by name."""
    pool = raw.rows_of("train") if split.official else np.arange(len(raw.y))
    named = site[pool] if split.official else site
    there = np.bincount(named, minlength=len(names)) > 0
    clients = tuple(name for name, has_rows in zip(names, there.tolist(), strict=True) if has_rows)
    owner = named if len(clients) == len(names) else (np.cumsum(there) - 1)[named]
    return _cut(raw, site, clients, pool, owner, split, Key(seed).fold("data"))


def _cut(
    raw: Raw,
    strata: NDArray[np.int64],
    clients: tuple[str, ...],
    pool: Rows,
    owner: NDArray[np.int64],
    split: Split,
    key: Key,
) -> Allotment:
    """Cut the rows of each client, of which `owner` numbers the pool's, into train, val, test."""
    if split.official and len(raw.rows_of("val")):
        split = replace(split, val=0.0)
    by_class = raw.classes is not None and raw.y.ndim == 1
    labels = np.asarray(raw.y) if by_class else np.zeros(len(raw.y), np.int8)
    rows = split.cut_all(labels, pool, owner, clients, key.fold("split"))
    if split.official:
        parts = [pool[part] for part in group_rows(owner, len(clients))]
        rows = _with_official(raw, strata, parts, rows, key)
    return Allotment(clients, rows)


def _with_official(
    raw: Raw, strata: NDArray[np.int64], parts: list[Rows], rows: Assignment, key: Key
) -> Assignment:
    """Add the data's own val and test rows, in each client's mix of strata."""
    val = share_held_out(strata, parts, raw.rows_of("val"), key.fold("official", "val"))
    test = share_held_out(strata, parts, raw.rows_of("test"), key.fold("official", "test"))
    cells = (
        np.sort(np.concatenate([rows.rows(client, split), more]))
        for client, held in enumerate(zip(val, test, strict=True))
        for split, more in enumerate([np.empty(0, np.int64), *held])
    )
    return Assignment.of(cells)


def share_held_out(
    strata: NDArray[np.int64], parts: list[Rows], held: Rows, key: Key
) -> list[Rows]:
    """Share `held` rows among clients: each stratum in proportion to what the clients hold of it.

    A client that loses a row to rounding in one stratum has priority in the next, so that its total
    is right as well. Rows of a stratum that no client holds are left out.
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
    """Share `total` by weights, the remainder to the clients with most credit; return both."""
    exact = total * weights / weights.sum()
    shares = np.floor(exact).astype(np.int64)
    owed = credit + exact - shares
    first = np.argsort(-owed, kind="stable")[: total - int(shares.sum())]
    shares[first] += 1
    owed[first] -= 1
    return shares, owed
