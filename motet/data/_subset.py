"""Parts of a data set: fewer rows, some of the classes, images of another size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motet._core.keys import Key
from motet.data._features import featured
from motet.data._partition.base import Rows, require_whole
from motet.data._partition.counts import encode
from motet.data._raw import SPLITS, Raw
from motet.data._resizing import resized
from motet.errors import CapabilityError, RequestError, nearest

Classes = int | Sequence[int | str]
LARGEST = 1024  # pixels of a side


@dataclass(frozen=True, kw_only=True)
class Subset:
    """What to keep of a data set.

    Attributes:
        limit: Rows, over all splits in their own proportion; drawn evenly from natural clients, or
            else from classes.
        classes: A number of classes, the first ones, or a list of them by name or number. They are
            numbered anew, in the given order.
        size: Height and width of images, which are resized with antialiasing.
        backbone: A pretrained network whose features replace the images.
    """

    limit: int | None = None
    classes: Classes | None = None
    size: int | None = None
    backbone: str | None = None

    def __post_init__(self) -> None:
        for name in ("limit", "size"):
            if getattr(self, name) is not None:
                require_whole(f"data.{name}", getattr(self, name), 1)
        if self.size is not None and self.size > LARGEST:
            raise RequestError(
                f"data.size is at most {LARGEST} pixels; got {self.size}.", option="size"
            )

    def of(self, raw: Raw, key: Key) -> Raw:
        """Cut the data: classes first, so that a limit counts rows that can be kept."""
        if self.classes is not None:
            raw = with_classes(raw, self.classes)
        if self.limit is not None and self.limit < len(raw.y):
            raw = with_rows(raw, evenly_drawn(raw, self.limit, key.fold("limit")))
        if self.backbone is not None:
            return featured(raw, self.backbone, self.size)
        return raw if self.size is None else resized(raw, self.size)

    def recipe(self) -> dict[str, Any]:
        """Describe what was cut, by JSON values; nothing is cut: {}."""
        classes = self.classes
        listed = classes if classes is None or isinstance(classes, int) else list(classes)
        values = {
            "limit": self.limit,
            "classes": listed,
            "size": self.size,
            "backbone": self.backbone,
        }
        return {name: value for name, value in values.items() if value is not None}


def with_rows(raw: Raw, rows: Rows) -> Raw:
    """Keep some rows, in ascending order."""

    def kept(values: NDArray[Any] | None) -> NDArray[Any] | None:
        return None if values is None else np.asarray(values[rows])

    test = None
    if raw.test_rows is not None:
        test = np.flatnonzero(np.isin(rows, raw.test_rows))
    return replace(
        raw,
        x=np.asarray(raw.x[rows]),
        y=np.asarray(raw.y[rows]),
        test_rows=test,
        clients=kept(raw.clients),
        split=kept(raw.split),
        coarse=kept(raw.coarse),
    )


def evenly_drawn(raw: Raw, limit: int, key: Key) -> Rows:
    """Draw rows so that every split, and in it every client or class, keeps its share."""
    split = np.zeros(len(raw.y), np.int64)
    for number, name in enumerate(SPLITS):
        split[raw.rows_of(name)] = number
    by_class = raw.classes is not None and raw.y.ndim == 1
    strata = raw.clients if raw.clients is not None else raw.y if by_class else None
    within = np.zeros(len(raw.y), np.int64) if strata is None else encode(np.asarray(strata))[0]
    shuffled = key.numpy().permutation(len(raw.y))
    order = np.lexsort((shuffled, within, split))
    places = np.arange(limit) * len(order) // limit  # equally spaced in the sorted order
    return np.sort(order[places]).astype(np.int64)


def with_classes(raw: Raw, classes: Classes) -> Raw:
    """Keep the rows of some classes, which get the numbers 0, 1, ..."""
    if raw.classes is None or raw.y.ndim != 1:
        raise CapabilityError("data.classes chooses among classes, and these data have none.")
    chosen = _numbers(classes, raw)
    number = np.full(raw.classes, -1, np.int64)
    number[chosen] = np.arange(len(chosen))
    rows = np.flatnonzero(number[np.asarray(raw.y, np.int64)] >= 0)
    cut = with_rows(raw, rows)
    labels = None if raw.labels is None else tuple(raw.labels[c] for c in chosen)
    return replace(cut, y=number[cut.y.astype(np.int64)], labels=labels, classes=len(chosen))


def _numbers(classes: Classes, raw: Raw) -> list[int]:
    total = raw.classes or 0
    if isinstance(classes, int):
        if not 2 <= classes <= total:
            raise RequestError(
                f"data.classes is a number between 2 and {total} here; got {classes}."
            )
        return list(range(classes))
    numbers = [_number(name, raw) for name in classes]
    if len(set(numbers)) < len(numbers) or len(numbers) < 2:
        raise RequestError(
            f"data.classes lists at least two classes, each once; got {list(classes)}."
        )
    return numbers


def _number(name: int | str, raw: Raw) -> int:
    total = raw.classes or 0
    if isinstance(name, int) and not isinstance(name, bool) and 0 <= name < total:
        return name
    labels = raw.labels or ()
    if name not in labels:
        known = labels or [str(number) for number in range(total)]
        raise RequestError(
            f'data.classes: no class is called "{name}"; {nearest(str(name), known)}.'
        )
    return labels.index(str(name))
