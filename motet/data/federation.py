"""A federation: clients, and the examples each of them holds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from motet.data.assignment import Assignment
from motet.data.chain import Chain
from motet.data.check import check_federation
from motet.data.convert import to_inputs, to_targets
from motet.data.fingerprint import assignment_hash, describe, require_same
from motet.data.heterogeneity import Heterogeneity, measure
from motet.data.numbered import Numbered
from motet.data.raw import SPLITS, Normalize
from motet.data.retarget import judges_from_pairs, judges_from_seed
from motet.data.shared import Donors, share_rows
from motet.errors import CapabilityError, RequestError, nearest


class Examples(NamedTuple):
    """Inputs and targets of one client."""

    x: Tensor
    y: Tensor


@dataclass(frozen=True, eq=False)
class Federation:
    """Clients with their own train, val and test examples.

    Inputs and targets stay where they are, memory-mapped or not; `examples` reads one client's
    rows. Make one with `motet.data.load` or one of the `motet.data.from_...` functions.

    Attributes:
        name: What the data are called.
        clients: Client ids in the order they were listed; no result depends on it.
        x: Inputs, rows numbered through.
        y: Targets, likewise.
        rows: Which rows belong to which client and split.
        classes: Number of classes; None for regression.
        labels: Class names, if known.
        normalize: Affine map that `examples` applies to inputs.
        features: Names of the input columns, for tables.
        recipe: How the split was made, as values for JSON.
    """

    name: str
    clients: Sequence[str]
    x: Chain
    y: Chain
    rows: Assignment
    classes: int | None
    labels: tuple[str, ...] | None = None
    normalize: Normalize | None = None
    features: tuple[str, ...] | None = None
    recipe: Mapping[str, Any] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return self.x.shape

    @cached_property
    def _position(self) -> Callable[[str], int]:
        if isinstance(self.clients, Numbered):
            return self.clients.position
        return {client: position for position, client in enumerate(self.clients)}.__getitem__

    def _find(self, client: str) -> int:
        try:
            return self._position(client)
        except KeyError:
            close = get_close_matches(client, self.clients, n=20) or self.clients[:20]
            raise RequestError(
                f'no client is called "{client}" among {len(self.clients)}; '
                f"{nearest(client, close)}"
            ) from None

    def size(self, client: str, split: str) -> int:
        """Count the examples of one client without touching them."""
        return len(self.rows.rows(self._find(client), _split_number(split)))

    def sizes(self, split: str = "train") -> dict[str, int]:
        """Count the examples of every client."""
        counts = self.rows.sizes[:, _split_number(split)]
        return dict(zip(self.clients, counts.tolist(), strict=True))

    def examples(self, client: str, split: str) -> Examples:
        """Read the examples of one client; without rows the tensors are empty."""
        return self._examples(client, split, lambda values, rows: values.take(rows))

    def lent_examples(self, client: str, split: str) -> Examples:
        """Read the examples of one client to look at only: they may be the federation's own."""
        return self._examples(client, split, lambda values, rows: values.lend(rows))

    def _examples(
        self, client: str, split: str, read: Callable[[Chain, NDArray[Any]], NDArray[Any]]
    ) -> Examples:
        rows = self.rows.rows(self._find(client), _split_number(split))
        return Examples(
            to_inputs(read(self.x, rows), self.normalize),
            to_targets(read(self.y, rows), classes=self.classes),
        )

    def check(self) -> Federation:
        """Refuse data that cannot be used, with client and row; return the federation itself."""
        check_federation(self)
        return self

    def select(self, clients: Iterable[str]) -> Federation:
        """Make a federation of some clients only."""
        chosen = tuple(clients)
        places = [self._find(client) for client in chosen]
        if len(set(chosen)) < len(chosen) or not chosen:
            raise RequestError(
                f"select needs at least one client and each only once; {len(chosen)} names came, "
                f"{len(set(chosen))} of them different."
            )
        rows = self.rows.pick(places, places)
        return replace(self, clients=chosen, rows=rows, recipe=self._then(select=list(chosen)))

    def retarget(
        self, *, seed: int = 0, pairs: Mapping[str, str] | None = None, fixed_points: bool = False
    ) -> Federation:
        """Judge clients on other clients' data: (val, test) pairs are moved, training data stay.

        Args:
            seed: Names the permutation that is drawn; by default no client keeps its own pair.
            pairs: Instead of drawing: `{"a": "b"}` judges a on b's data. Clients not named keep
                their own.
            fixed_points: Draw among all permutations, also those where clients keep their own pair.
        """
        step: dict[str, Any] = {"seed": seed, "fixed_points": fixed_points}
        if pairs is not None:
            judges, step = judges_from_pairs(self.clients, pairs), {"pairs": dict(pairs)}
        else:
            judges = judges_from_seed(self.clients, seed, fixed_points=fixed_points)
        held = [self._find(judges[client]) for client in self.clients]
        rows = self.rows.pick(range(len(held)), held)
        return replace(self, rows=rows, recipe=self._then(retarget=step))

    def share(
        self, *, beta: float = 0.05, alpha: float = 1.0, donors: Donors = "keep", seed: int = 0
    ) -> Federation:
        """Let clients train on a pool of training rows beside their own; no row is copied.

        Args:
            beta: Size of the pool, as a share of all training rows. The classes are balanced as far
                as there are rows.
            alpha: Share of the pool that each client gets, drawn for itself.
            donors: Whether those who had the rows "keep" them, or "give" them away, so that the
                pool is nobody's own.
            seed: Names the draw.
        """
        rows = share_rows(self, beta=beta, alpha=alpha, donors=donors, seed=seed)
        step = {"beta": beta, "alpha": alpha, "donors": donors, "seed": seed}
        return replace(self, rows=rows, recipe=self._then(share=step))

    def histogram(self, split: str = "train") -> NDArray[np.int64]:
        """Count each client's labels, [clients, classes]; a sequence counts with every token."""
        if self.classes is None:
            raise CapabilityError(
                f'"{self.name}" is a regression task: there are no labels to count.'
            )
        client_of, rows = self.rows.clients_of(_split_number(split))
        labels = self.y.take(rows).astype(np.int64).reshape(len(rows), -1)  # [rows, tokens]
        cells = client_of[:, None] * self.classes + labels
        counts = np.bincount(cells.ravel(), minlength=len(self.clients) * self.classes)
        return counts.reshape(len(self.clients), self.classes)

    def heterogeneity(self, split: str = "train") -> Heterogeneity:
        """Measure how much the clients differ in labels and sizes."""
        histogram = None if self.classes is None else self.histogram(split)
        return measure(histogram, self.rows.sizes[:, _split_number(split)])

    @cached_property
    def hash(self) -> str:
        """SHA-256 over who has which rows in which split, and the targets found there."""
        return assignment_hash(self)

    def manifest(self) -> dict[str, Any]:
        """Everything that is needed to make the same split again, as values for JSON."""
        return describe(self)

    def save_manifest(self, path: str | Path) -> None:
        """Write the manifest as JSON."""
        text = json.dumps(self.manifest(), indent=2, ensure_ascii=False)
        Path(path).write_text(text + "\n", encoding="utf-8")

    def verify(self, manifest: Mapping[str, Any]) -> Federation:
        """Refuse to be another federation than the manifest's; return the federation itself."""
        require_same(self, manifest)
        return self

    def _then(self, **step: Any) -> dict[str, Any]:
        return {**self.recipe, "steps": [*self.recipe.get("steps", []), step]}

    def _repr_html_(self) -> str:
        from motet.reprs import federation_html

        return federation_html(self)

    def __repr__(self) -> str:
        train, val, test = self.rows.sizes.sum(axis=0).tolist()
        task = "regression" if self.classes is None else f"{self.classes} classes"
        return (
            f"<Federation {self.name}: {len(self.clients)} clients, "
            f"{train} train / {val} val / {test} test, x {self.shape}, {task}>"
        )


def _split_number(split: str) -> int:
    for number, name in enumerate(SPLITS):
        if split == name:
            return number
    raise RequestError(f'no split is called "{split}"; {nearest(split, SPLITS)}')
