"""Warnings about a table that can be read, but may not mean what its owner thinks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motet._core.text import listed, plural
from motet.data._assignment import Assignment
from motet.data._schema import Schema
from motet.data._tables.cells import is_text, plain
from motet.data._tables.fixes import fix

Rows = NDArray[Any]

LOOKED_AT = 20_000  # rows that are compared with the target
FIRST_ROWS = 500  # of those, the ones that are compared first
FEWEST_ROWS = 30  # below this, unique or separating values are no surprise
SHOWN = 5
LARGE = 1e5  # inputs of this size or more make gradients so large that training may diverge
MANY_SITES = 1000  # beyond this, labels of single sites are not compared


def inspect(
    schema: Schema,
    table: Any,
    x: NDArray[np.float32],
    y: NDArray[Any],
    rows: Assignment,
    clients: Sequence[str],
    few_test_rows: int,
) -> list[str]:
    """Return warnings about columns and sites."""
    site, train = rows.clients_of(0)
    return [
        *_id_like(schema, table),
        *_constant(schema, x, train),
        *_large(schema),
        *_leaks(schema, x, y, train),
        *near_duplicates(clients),
        *_other_labels(schema, y, site, train, clients),
        *_few_test_rows(rows.sizes[:, 2], clients, few_test_rows),
        *_single_class(schema, y, site, train, clients),
    ]


def _id_like(schema: Schema, table: Any) -> list[str]:
    """Find whole numbers or texts that are different in every row."""
    found = []
    for column in schema.columns:
        values = table[column.name]
        from pyarrow import compute, types

        whole = types.is_integer(values.type) or is_text(values)
        if column.kind in ("ordinal", "date") or not whole or len(values) < FEWEST_ROWS:
            continue
        few = plain(values.slice(0, 2000))  # a repeated value is usually near the start
        if compute.count_distinct(few).as_py() < len(few):
            continue
        if compute.count_distinct(plain(values)).as_py() == len(values):
            found.append(
                f'column "{column.name}" is different in every row, like an id, and is used as an '
                f"input. Leave it out with {fix('drop', column.name)}."
            )
    return found


def _constant(schema: Schema, x: NDArray[np.float32], train: Rows) -> list[str]:
    found, place = [], 0
    for column in schema.columns:
        width = len(column.features)
        first = x[train[0], place : place + width]
        part = x[:, place : place + width]
        # Scales of single sites make a constant column differ, so only plain ones are compared.
        is_same = not schema.site_scaling and bool((part[train[:FIRST_ROWS]] == first).all())
        if is_same and bool((part[train] == first).all()):
            found.append(
                f'column "{column.name}" has the same value in all training rows. Leave it out '
                f"with {fix('drop', column.name)}."
            )
        place += width
    return found


def _large(schema: Schema) -> list[str]:
    """Find numbers with which training diverges, unless inputs are scaled."""
    if schema.scaling is not None:
        return []
    sizes = {c.name: max(abs(c.low or 0), abs(c.high or 0)) for c in schema.columns}
    name = max(sizes, key=lambda column: sizes[column])
    if sizes[name] < LARGE:
        return []
    return [
        f'column "{name}" holds numbers up to {sizes[name]:.3g}, with which training may diverge. '
        f"Scale the inputs with {fix('standardize', 'federation')}."
    ]


def _other_labels(
    schema: Schema, y: NDArray[Any], site: Rows, train: Rows, clients: Sequence[str]
) -> list[str]:
    """Find a site whose labels no other site has, such as 0 and 1 among texts."""
    labels = schema.target.labels
    if not labels or schema.target.kind != "classes" or not 2 < len(clients) < MANY_SITES:
        return []
    there = np.zeros((len(clients), len(labels)), bool)
    there[site, np.asarray(y)[train]] = True
    alone = there & (there.sum(axis=0) == 1)
    found = np.flatnonzero((alone == there).all(axis=1))
    if not len(found) or len(found) == len(clients):
        return []
    own = [labels[place] for place in np.flatnonzero(there[found[0]])]
    others = [label for label in labels if label not in own]
    return [
        f'site "{clients[found[0]]}" has none of the labels of other sites: its labels are '
        f"{', '.join(own[:SHOWN])}. If they mean the same, say so: "
        f"{fix('labels', f'{own[0]}={others[0]}')}."
    ]


def _leaks(schema: Schema, x: NDArray[np.float32], y: NDArray[Any], train: Rows) -> list[str]:
    """Find inputs that tell the target without a mistake."""
    train = train[:: max(1, len(train) // LOOKED_AT)]
    if (
        len(train) < FEWEST_ROWS
        or schema.site_scaling
        or schema.target.kind in ("survival", "labels")
    ):
        return []
    found, place = [], 0
    target = np.asarray(y)[train]
    for column in schema.columns:
        width = len(column.features)
        inputs, is_class = slice(place, place + width), schema.target.kind == "classes"
        place += width
        # Nearly always, the first rows decide, which spares looking at all of them.
        if is_class and not _separates(x[train[:FIRST_ROWS], inputs], target[:FIRST_ROWS]):
            continue
        if _tells(x[train, inputs], target, is_class=is_class):
            found.append(
                f'column "{column.name}" predicts the target "{schema.target.name}" without a '
                "mistake in the training rows. If it is only known once the target is known, leave "
                f"it out with {fix('drop', column.name)}."
            )
    return found


def _tells(part: NDArray[np.float32], target: NDArray[Any], *, is_class: bool) -> bool:
    if not is_class:
        centred = part[:, 0].astype(np.float64) - part[:, 0].mean(dtype=np.float64)
        answer = target.astype(np.float64) - target.mean(dtype=np.float64)
        scale = np.sqrt((centred**2).sum() * (answer**2).sum())
        return bool(part.shape[1] == 1 and scale > 0 and abs(centred @ answer) > 0.99999 * scale)
    if not _separates(part, target) or len(np.unique(target)) < 2:
        return False
    # Categories of one row each tell everything about nothing.
    return part.shape[1] == 1 or len(np.unique(part, axis=0)) < len(target) / 4


def _separates(part: NDArray[np.float32], target: NDArray[Any]) -> bool:
    """Tell whether no two classes share a range of one input, or a combination of several."""
    classes, codes = np.unique(target, return_inverse=True)
    if part.shape[1] == 1:
        low, high = np.full(len(classes), np.inf), np.full(len(classes), -np.inf)
        np.minimum.at(low, codes, part[:, 0])
        np.maximum.at(high, codes, part[:, 0])
        ends = sorted(zip(low.tolist(), high.tolist(), strict=True))
        return all(before[1] < after[0] for before, after in pairwise(ends))
    _, kinds = np.unique(part, axis=0, return_inverse=True)
    pairs = np.unique(np.stack([kinds.ravel(), codes]), axis=1)
    return bool(pairs.shape[1] == kinds.max(initial=-1) + 1)


def near_duplicates(names: Sequence[str]) -> list[str]:
    """Find site names that differ in one letter; numbers in names are meant to differ.

    Two names are one edit apart if both become the same by leaving at most one letter out.
    """
    seen: dict[tuple[str, str], str] = {}
    pairs: list[tuple[str, str]] = []
    numbers = {name: "".join(filter(str.isdigit, name)) for name in names}
    counts = Counter(numbers.values())
    for name in (name for name in names if counts[numbers[name]] > 1):
        folded = re.sub(r"[\W_]+", " ", name.casefold()).strip()
        digits, letters = numbers[name], re.sub(r"\d", "", folded)
        # Numbers tell sites apart, and so do single letters: "Ward A" and "Ward B".
        if len(letters) < 5 or len(folded.split()[-1]) == 1:
            continue
        keys = {(digits, letters)}
        keys |= {(digits, letters[:i] + letters[i + 1 :]) for i in range(len(letters))}
        close = next((seen[key] for key in keys if key in seen), None)
        if close is not None:
            pairs.append((close, name))
        for key in keys:
            seen.setdefault(key, name)
    if not pairs:
        return []
    shown = listed([f'"{one}" and "{two}"' for one, two in pairs[:SHOWN]])
    more = f" ({len(pairs) - SHOWN} more pairs)" if len(pairs) > SHOWN else ""
    return [
        f"sites with nearly the same name are different sites: {shown}{more}. If one is a typing "
        "error, correct it in the table."
    ]


def _few_test_rows(
    test: NDArray[np.int64], clients: Sequence[str], few_test_rows: int
) -> list[str]:
    few = [clients[int(i)] for i in np.flatnonzero(test < few_test_rows)]
    if not few or few_test_rows <= 0:
        return []
    return [
        f"{plural(len(few), 'site')} with fewer than {few_test_rows} test rows "
        f"({listed(few, most=SHOWN)}; the least has {test.min()}): their own scores say little."
    ]


def _single_class(
    schema: Schema, y: NDArray[Any], site: Rows, train: Rows, clients: Sequence[str]
) -> list[str]:
    labels = len(schema.target.labels)
    if schema.target.kind != "classes" or labels < 2:
        return []
    target, first = np.asarray(y)[train], np.flatnonzero(np.diff(site, prepend=-1))
    same = np.minimum.reduceat(target, first) == np.maximum.reduceat(target, first)
    single = [clients[number] for number in site[first[same]].tolist()]
    if not single:
        return []
    return [
        f"{plural(len(single), 'site')} with training rows of one class only "
        f"({listed(single, most=SHOWN)})."
    ]
