"""Federations from arrays in memory, one pair (x, y) per client and split."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from motet._core.keys import Key
from motet.data._assignment import Assignment
from motet.data._chain import Block, Chain
from motet.data._check import as_numbers, check_pair
from motet.data._convert import is_tokens
from motet.data._federation import Federation
from motet.data._raw import SPLITS, Normalize, Precision
from motet.data._sources.common import count_classes
from motet.data._split import Split
from motet.errors import DataError, RequestError

PerClient = Mapping[str, tuple[Any, Any]]


class Cell(NamedTuple):
    """One client's examples of one split."""

    client: str
    split: str
    x: Block
    y: Block


@dataclass(frozen=True, kw_only=True)
class About:
    """Everything about the data except the examples."""

    name: str
    source: Mapping[str, Any]
    split: Split | None = None
    seed: int = 0
    classes: int | None = None
    labels: Sequence[str] | None = None
    normalize: Normalize | None = None
    precision: Precision | None = None


def from_arrays(
    train: PerClient,
    val: PerClient | None = None,
    test: PerClient | None = None,
    *,
    split: Split | None = None,
    seed: int = 0,
    classes: int | None = None,
    labels: Sequence[str] | None = None,
    normalize: Normalize | None = None,
    precision: Precision | None = None,
    name: str = "arrays",
) -> Federation:
    """Make a federation of `{client: (x, y)}`, numpy or torch; nothing is copied.

    Args:
        train: Training examples of every client.
        val: Validation examples, for the clients that have some.
        test: Test examples, for the clients that have some.
        split: Instead of `val` and `test`: cut them from each client's training examples.
        seed: Seed of the cut.
        classes: Number of classes; None counts them if targets are integers; floats mean
            regression.
        labels: Class names.
        normalize: Affine map that is applied when examples are read.
        precision: "float64" keeps doubles, "float32" rounds them; None rounds them as well, with a
            warning.
        name: Name of the data.

    Returns:
        The federation.

    Raises:
        RequestError: An option does not fit.
        DataError: Arrays that cannot be used; the message names the client.

    Example:
        >>> import numpy as np
        >>> clinics = {name: (np.ones((10, 3), np.float32), np.arange(10) % 2) for name in "ab"}
        >>> from_arrays(clinics, split=Split(val=0.2, test=0.2)).size("a", "train")
        6
    """
    if precision not in (None, "float32", "float64"):
        raise RequestError(f'precision= is "float32" or "float64"; got {precision!r}.')
    given = {"train": train, "val": _or_nothing(val), "test": _or_nothing(test)}
    for split_name, per_client in given.items():
        _check_mapping(split_name, per_client)
    cells = [
        _cell(str(client), split_name, pair)
        for split_name, per_client in given.items()
        for client, pair in per_client.items()
    ]
    about = About(
        name=name,
        source={"from": "arrays"},
        split=split,
        seed=seed,
        classes=classes,
        labels=labels,
        normalize=normalize,
        precision=precision,
    )
    return assemble(cells, [str(client) for client in train], about)


def _or_nothing(per_client: PerClient | None) -> PerClient:
    return {} if per_client is None else per_client


def _check_mapping(split: str, per_client: Any) -> None:
    if isinstance(per_client, Mapping):
        return
    remedy = "."
    if split != "train" and isinstance(per_client, int | float):
        remedy = (
            f"; for a share of each client's examples, write split=Split({split}={per_client})."
        )
    raise RequestError(
        f"{split}= expects {{client: (x, y)}}, got {type(per_client).__name__}{remedy}"
    )


def _cell(client: str, split: str, pair: tuple[Any, Any]) -> Cell:
    who = f'client "{client}" ({split})'
    try:
        x, y = pair
    except (TypeError, ValueError):
        raise DataError(f"{who} must be a pair (x, y), got {type(pair).__name__}.") from None
    return Cell(client, split, as_numbers(x, f"x of {who}"), as_numbers(y, f"y of {who}"))


def assemble(cells: Iterable[Cell], clients: Sequence[str], about: About) -> Federation:
    """Build a federation from cells without concatenating their arrays, and check it."""
    used = _in_order(cells, clients, about)
    x, y = Chain.of([cell.x for cell in used]), Chain.of([cell.y for cell in used])
    ranges = {
        (cell.client, cell.split): np.arange(start, stop)
        for cell, start, stop in zip(used, x.starts[:-1], x.starts[1:], strict=True)
    }
    nothing = np.empty(0, np.int64)
    rows = [[ranges.get((client, split), nothing) for split in SPLITS] for client in clients]
    if about.split is not None:
        rows = [_cut(own, client, y, about) for own, client in zip(rows, clients, strict=True)]
    return Federation(
        name=about.name,
        clients=tuple(clients),
        x=x,
        y=y,
        rows=Assignment.of(cell for own in rows for cell in own),
        classes=count_classes(y, about.classes, about.labels),
        labels=None if about.labels is None else tuple(about.labels),
        normalize=about.normalize,
        precision=about.precision,
        recipe={
            "source": dict(about.source),
            "seed": about.seed,
            "split": about.split and about.split.recipe(),
        },
    ).check()


def _in_order(cells: Iterable[Cell], clients: Sequence[str], about: About) -> list[Cell]:
    """Check cells against each other and sort them, so that the order of listing is irrelevant."""
    twice = [client for client, times in Counter(clients).items() if times > 1]
    if twice:
        raise DataError(f'client ids must be unique; "{twice[0]}" appears more than once.')
    listed = set(clients)
    used: list[Cell] = []
    for cell in sorted(cells, key=lambda cell: (cell.client, SPLITS.index(cell.split))):
        who = f'client "{cell.client}" ({cell.split})'
        check_pair(cell.x, cell.y, who)
        if cell.client not in listed:
            raise DataError(f'client "{cell.client}" has {cell.split} data but no training data.')
        if cell.x.shape[0]:
            _check_alike(cell, used[0] if used else cell)
            used.append(cell)
    if not used:
        raise DataError(f'"{about.name}" has no clients with data; at least one is needed.')
    return used


def _check_alike(cell: Cell, first: Cell) -> None:
    """Refuse clients whose inputs or targets differ in shape or kind."""
    for what, own, other in (("inputs", cell.x, first.x), ("targets", cell.y, first.y)):
        if own.shape[1:] != other.shape[1:]:
            raise DataError(
                f'all clients need {what} of one shape; a row of client "{first.client}" has '
                f'{tuple(other.shape[1:])}, of client "{cell.client}" {tuple(own.shape[1:])}.'
            )
    if _meaning(cell.x.dtype) != _meaning(first.x.dtype):
        raise DataError(
            f'all clients need inputs of one kind; client "{first.client}" has {first.x.dtype} '
            f'({_meaning(first.x.dtype)}), client "{cell.client}" has {cell.x.dtype} '
            f"({_meaning(cell.x.dtype)}). Convert one of them."
        )


def _meaning(dtype: np.dtype[Any]) -> str:
    if dtype == np.uint8:
        return "images"
    return "tokens" if is_tokens(dtype) else "numbers"


def _cut(
    own: list[NDArray[np.int64]], client: str, y: Chain, about: About
) -> list[NDArray[np.int64]]:
    train, *held = own
    if about.split is None or about.split.official or any(len(rows) for rows in held):
        raise RequestError(
            "`split` cuts val and test from the training examples by shares; pass either `split` "
            "or val and test examples, not both."
        )
    targets = y.take(train)
    labels = targets if targets.dtype.kind != "f" and targets.ndim == 1 else np.zeros(len(train))
    cut = about.split.cut(labels, Key(about.seed).fold("data", "split", client))
    return [np.sort(train[positions]) for positions in cut]
