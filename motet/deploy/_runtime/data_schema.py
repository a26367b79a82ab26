"""The data as the server knows them: names of clients and the schema of an example."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from motet.data._assignment import Assignment
from motet.data._chain import Chain
from motet.data._convert import is_tokens
from motet.data._federation import Examples, Federation
from motet.data._raw import SPLITS


@dataclass(frozen=True, kw_only=True)
class DataSchema:
    """The schema of an example, the same at every client."""

    shape: tuple[int, ...]
    target_shape: tuple[int, ...] = ()
    classes: int | None = None
    tokens: bool = False
    labels: tuple[str, ...] | None = None

    @classmethod
    def of(cls, federation: Federation) -> DataSchema:
        """Read the schema of a federation."""
        return cls(
            shape=federation.shape,
            target_shape=federation.y.shape,
            classes=federation.classes,
            tokens=is_tokens(federation.x.dtype),
            labels=federation.labels,
        )


@dataclass(frozen=True, eq=False)
class EmptyFederation(Federation):
    """A federation without a single example.

    Attributes:
        agreed: Stands for the data in comparisons, since the server has none.
    """

    agreed: str = ""

    @cached_property
    def hash(self) -> str:
        """The hash of the agreement, whichever clients take part."""
        return self.agreed


def empty_federation(
    schema: DataSchema, clients: Sequence[str], agreed: str = ""
) -> EmptyFederation:
    """Make a federation of names, without examples."""
    x = np.zeros((0, *schema.shape), np.int64 if schema.tokens else np.float32)
    y = np.zeros((0, *schema.target_shape), np.float32 if schema.classes is None else np.int64)
    nothing = np.empty(0, np.int64)
    return EmptyFederation(
        name="sites",
        clients=tuple(clients),
        x=Chain.of([x]),
        y=Chain.of([y]),
        rows=Assignment.of(nothing for _ in clients for _ in SPLITS),
        classes=schema.classes,
        labels=schema.labels,
        recipe={"sites": list(clients)},
        agreed=agreed,
    )


def blank(federation: Federation) -> Examples:
    """Make one example of zeros, with the schema of the federation."""
    x, y = federation.examples(federation.clients[0], "train")
    return Examples(
        torch.zeros((1, *x.shape[1:]), dtype=x.dtype), torch.zeros((1, *y.shape[1:]), dtype=y.dtype)
    )
