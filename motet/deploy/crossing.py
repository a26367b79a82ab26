"""What leaves a site and what comes to it, tensor by tensor, for people who must approve it."""

from __future__ import annotations

from typing import Any, NamedTuple

from motet import tree
from motet.remote.agreement import Agreement
from motet.remote.rehearsal import Rehearsal


class Line(NamedTuple):
    """One tensor of a message."""

    name: str
    shape: tuple[int, ...]
    kind: str
    size: int  # bytes


class Crossing(NamedTuple):
    """The messages of one round, as one site sees them."""

    down: tuple[Line, ...]
    up: tuple[Line, ...]


def crossing(agreement: Agreement, sites: tuple[str, ...]) -> Crossing:
    """Play a round without data, and list what was sent."""
    rehearsal = Rehearsal(agreement.setting(agreement.outline(sites)))
    *_, down = rehearsal.downs(sites[0], serving=False)
    return Crossing(_lines(down), _lines(rehearsal.up()))


def _lines(message: Any) -> tuple[Line, ...]:
    return tuple(
        Line(
            tree.readable(path),
            tuple(leaf.shape),
            str(leaf.dtype).removeprefix("torch."),
            leaf.numel() * leaf.element_size(),
        )
        for path, leaf in tree.flatten(message)
    )
