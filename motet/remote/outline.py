"""What a server knows about data it never sees: who the clients are, and the form of an example."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from motet.data.assignment import Assignment
from motet.data.chain import Chain
from motet.data.convert import is_tokens
from motet.data.federation import Examples, Federation
from motet.data.raw import SPLITS


@dataclass(frozen=True, kw_only=True)
class Form:
    """The form of one example, the same at every client."""

    shape: tuple[int, ...]
    target_shape: tuple[int, ...] = ()
    classes: int | None = None
    tokens: bool = False
    labels: tuple[str, ...] | None = None

    @classmethod
    def of(cls, federation: Federation) -> Form:
        """Read the form off data at hand."""
        return cls(
            shape=federation.shape,
            target_shape=federation.y.shape,
            classes=federation.classes,
            tokens=is_tokens(federation.x.dtype),
            labels=federation.labels,
        )


@dataclass(frozen=True, eq=False)
class Outline(Federation):
    """A federation without a single example.

    Attributes:
        agreed: Stands for the data where they are compared, since nobody here can look at them.
    """

    agreed: str = ""

    @cached_property
    def hash(self) -> str:
        """What was agreed on, whoever takes part."""
        return self.agreed


def outline(form: Form, clients: Sequence[str], agreed: str = "") -> Outline:
    """Make a federation of names."""
    x = np.zeros((0, *form.shape), np.int64 if form.tokens else np.float32)
    y = np.zeros((0, *form.target_shape), np.float32 if form.classes is None else np.int64)
    nothing = np.empty(0, np.int64)
    return Outline(
        name="sites",
        clients=tuple(clients),
        x=Chain.of([x]),
        y=Chain.of([y]),
        rows=Assignment.of(nothing for _ in clients for _ in SPLITS),
        classes=form.classes,
        labels=form.labels,
        recipe={"sites": list(clients)},
        agreed=agreed,
    )


def blank(federation: Federation) -> Examples:
    """Make one example of zeros, in the form of the federation's."""
    x, y = federation.examples(federation.clients[0], "train")
    return Examples(
        torch.zeros((1, *x.shape[1:]), dtype=x.dtype), torch.zeros((1, *y.shape[1:]), dtype=y.dtype)
    )
