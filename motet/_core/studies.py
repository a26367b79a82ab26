"""What a method wants shown about a finished run: its clusters, its weights, its routing.

A study is data of one of five generic kinds, so that a page can draw it without knowing the method.
A method makes them from a finished run; it must not cost more than a look at the validation data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
from torch import Tensor

from motet.errors import RequestError, nearest

T = TypeVar("T")
Question = Callable[..., Tensor]  # (personal, x, task) -> one row per example
MOST_FRAMES, MOST_NAMES, MOST_POINTS = 20, 60, 200  # what a page can still show

KINDS: Mapping[str, tuple[str, ...]] = {  # kind -> the entries of its data
    "matrix": ("names", "frames", "quantity"),
    "tree": ("nodes",),
    "per_client": ("quantity", "values"),
    "lines": ("x", "y", "series"),
    "shares": ("quantity", "parts", "clients", "values"),
}


class FinishedRun(Protocol):
    """What a study may read; `motet.Run` provides it. Test data are not part of it.

    Example:
        >>> import motet
        >>> def rounds_run(run: FinishedRun) -> int:
        ...     return run.rounds_done
        >>> world = motet.testing.ragged()
        >>> rounds_run(motet.run(motet.FedAvg(), world.task, world.data, rounds=0))
        0
    """

    setting: Any  # the task, and who keeps what
    server: Any
    rounds_done: int
    notes: list[dict[str, Any]]

    def ask(
        self, question: Question, clients: Sequence[str], split: Literal["train", "val"] = "train"
    ) -> dict[str, Tensor]:
        """Ask clients' predictors for something other than predictions.

        Args:
            question: `(personal, x, task)` to a tensor with one row per example.
            clients: Ids of the clients.
            split: "train" or "val".

        Returns:
            The answers by client.
        """
        ...


@dataclass(frozen=True)
class Study:
    """One thing to show.

    Attributes:
        kind: How it is drawn, one of `KINDS`.
        title: What it is.
        note: How to read it, in one or two sentences.
        data: Values for JSON, with the entries its kind asks for.

    Example:
        >>> loss = {"quantity": "loss", "values": {"basel": 0.1, "lyon": 0.4}}
        >>> Study("per_client", "Loss by client", "Lower is better.", loss).to_dict()["title"]
        'Loss by client'
        >>> Study("per_client", "Loss by client", "Lower is better.", {"values": {}})
        Traceback (most recent call last):
            ...
        motet.errors.RequestError: a study of kind "per_client" needs the entries quantity, ...
    """

    kind: str
    title: str
    note: str
    data: dict[str, Any]

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise RequestError(f'no study is of kind "{self.kind}"; {nearest(self.kind, KINDS)}.')
        missing = [entry for entry in KINDS[self.kind] if entry not in self.data]
        if missing:
            raise RequestError(
                f'a study of kind "{self.kind}" needs the entries {", ".join(KINDS[self.kind])}; '
                f'"{self.title}" has no {", ".join(missing)}.'
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the study as values for JSON."""
        return {"kind": self.kind, "title": self.title, "note": self.note, "data": self.data}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Study:
        """Read what `to_dict` returned.

        Args:
            values: What `to_dict` returned.
        """
        return cls(values["kind"], values["title"], values["note"], dict(values["data"]))


def matrix(
    title: str,
    note: str,
    *,
    quantity: str,
    clients: Sequence[str],
    frames: Iterable[tuple[str, Any]],
) -> Study:
    """Show a number for every pair of clients, round by round.

    Args:
        title: What it is.
        note: How to read it; what is left out is added to it.
        quantity: What a number means.
        clients: Names of the rows and columns.
        frames: A label and an array each; NaN is nothing.
    """
    chosen = evenly(range(len(clients)), MOST_NAMES)
    cut = [(label, np.asarray(values)[np.ix_(chosen, chosen)]) for label, values in frames]
    shown = [
        {"label": label, "values": numbers(values)} for label, values in evenly(cut, MOST_FRAMES)
    ]
    left_out = _left_out(rounds=(len(shown), len(cut)), clients=(len(chosen), len(clients)))
    names = [clients[i] for i in chosen]
    data = {"names": names, "frames": shown, "quantity": quantity}
    return Study("matrix", title, note + left_out, data)


def per_client(
    title: str, note: str, *, quantity: str, values: Mapping[str, float], total: int
) -> Study:
    """Show a number for every client, or for some of a total."""
    data = {"quantity": quantity, "values": {c: number(value) for c, value in values.items()}}
    left_out = _left_out(clients=(len(values), total))
    return Study("per_client", title, note + left_out, data)


def shares(
    title: str,
    note: str,
    *,
    quantity: str,
    parts: Sequence[str],
    values: Mapping[str, Any],
    total: int,
) -> Study:
    """Show a few numbers for every client, or for some of a total: a row each, a number by part."""
    rows = [numbers(np.asarray(row)) for row in values.values()]
    left_out = _left_out(clients=(len(rows), total))
    data = {"quantity": quantity, "parts": list(parts), "clients": list(values), "values": rows}
    return Study("shares", title, note + left_out, data)


def lines(
    title: str, note: str, *, x: str, y: str, series: Mapping[str, Iterable[tuple[float, float]]]
) -> Study:
    """Show curves."""
    drawn = {name: [[at, number(value)] for at, value in curve] for name, curve in series.items()}
    return Study("lines", title, note, {"x": x, "y": y, "series": drawn})


def trained(run: FinishedRun, most: int = MOST_NAMES) -> list[str]:
    """Choose clients that have trained, evenly: the others have nothing to show yet."""
    return evenly(sorted(run.setting.store), most)


def evenly(items: Sequence[T], most: int) -> list[T]:
    """Choose at most `most` items, evenly spaced, including the first and the last.

    >>> evenly("abcdefg", 3)
    ['a', 'd', 'g']
    """
    if len(items) <= most:
        return list(items)
    return [items[i] for i in np.linspace(0, len(items) - 1, most).round().astype(int)]


def number(value: Any) -> float | None:
    """Turn a number into one for JSON, which has no NaN."""
    plain = float(value)
    return plain if math.isfinite(plain) else None


def numbers(values: np.ndarray) -> list[Any]:
    """Turn an array into lists for JSON."""
    if values.ndim > 1:
        return [numbers(row) for row in values]
    return [number(value) for value in values]


def _left_out(**counts: tuple[int, int]) -> str:
    """Say what is not shown.

    >>> _left_out(rounds=(20, 100), clients=(8, 8))
    ' Shown are 20 of 100 rounds, evenly chosen.'
    """
    few = [f"{shown} of {every} {what}" for what, (shown, every) in counts.items() if shown < every]
    return f" Shown are {' and '.join(few)}, evenly chosen." if few else ""
