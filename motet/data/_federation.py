"""`Federation`: clients with their examples, the object that everything else reads data from."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from motet._core.notebook_html import MOST_ROWS, box, details, faint, table, title
from motet.data._assignment import Assignment
from motet.data._augment import check_augmentations
from motet.data._chain import Chain
from motet.data._check import check_federation
from motet.data._convert import to_inputs, to_targets
from motet.data._fingerprint import assignment_hash, describe, require_same
from motet.data._heterogeneity import Heterogeneity, measure
from motet.data._numbered import Numbered
from motet.data._raw import SPLITS, Normalize, Precision
from motet.data._retarget import judges_from_pairs, judges_from_seed
from motet.data._schema import Schema
from motet.data._shared import Donors, share_rows
from motet.data._tables.aggregates import Aggregates
from motet.errors import CapabilityError, RequestError, nearest


class Examples(NamedTuple):
    """Inputs and targets of one client.

    Attributes:
        x: Inputs, [examples, ...].
        y: Targets, [examples, ...].

    Example:
        >>> import motet
        >>> x, y = motet.testing.ragged().data.examples("few", "train")
        >>> x.shape, y.shape
        (torch.Size([7, 4]), torch.Size([7]))
    """

    x: Tensor
    y: Tensor


@dataclass(frozen=True, eq=False)
class Federation:
    """Clients with their own train, val and test examples.

    Inputs and targets stay where they are, in memory or on disk; `examples` reads one client's
    rows. Make one with `motet.data.load` or one of the `motet.data.from_...` functions.

    Attributes:
        name: Name of the data.
        clients: Client ids in the order they were listed; no result depends on the order.
        x: Inputs of all clients.
        y: Targets, in the same order.
        rows: The rows of each client and split.
        classes: Number of classes; None for regression.
        labels: Class names, if known.
        normalize: Affine map that `examples` applies to inputs.
        precision: Of inputs and of targets that are values; None: float32, and doubles are
            rounded with a remark.
        features: Names of the input columns, for tables.
        recipe: How the split was made, as JSON values.
        schema: How raw rows become inputs, for tables.
        notes: What its owner should know about how the data were read, in sentences.
        aggregates: Counts and moments of each client's training rows, for tables.
        survival: Whether targets are (time, event).
        augment: How training images are varied in every round: "flip", "crop".

    Example:
        >>> import motet
        >>> data = motet.testing.ragged().data
        >>> data.clients[:3]
        ('many', 'few', 'one')
        >>> data.size("few", "train"), data.examples("few", "train").x.shape
        (7, torch.Size([7, 4]))
    """

    name: str
    clients: Sequence[str]
    x: Chain
    y: Chain
    rows: Assignment
    classes: int | None
    labels: tuple[str, ...] | None = None
    normalize: Normalize | None = None
    precision: Precision | None = None
    features: tuple[str, ...] | None = None
    recipe: Mapping[str, Any] = field(default_factory=dict)
    schema: Schema | None = None
    notes: tuple[str, ...] = ()
    aggregates: Aggregates | None = field(default=None, repr=False)
    survival: bool = False
    augment: tuple[str, ...] = ()

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
        """Return the number of examples of one client, without reading them.

        Args:
            client: Id of the client.
            split: "train", "val" or "test".

        Returns:
            The number of examples; 0 if it has none.

        Raises:
            RequestError: There is no such client or split.
        """
        return len(self.rows.rows(self._find(client), _split_number(split)))

    def sizes(self, split: str = "train") -> dict[str, int]:
        """Return the number of examples of every client.

        Args:
            split: "train", "val" or "test".

        Returns:
            The number by client.

        Raises:
            RequestError: There is no such split.
        """
        counts = self.rows.sizes[:, _split_number(split)]
        return dict(zip(self.clients, counts.tolist(), strict=True))

    def examples(self, client: str, split: str) -> Examples:
        """Read the examples of one client.

        Args:
            client: Id of the client.
            split: "train", "val" or "test".

        Returns:
            Inputs and targets as tensors, which are empty if it has no examples.

        Raises:
            RequestError: There is no such client or split.
        """
        return self._examples(client, split, Chain.take)

    def lent_examples(self, client: str, split: str) -> Examples:
        """Read the examples of one client without a copy where possible: do not modify them.

        Args:
            client: Id of the client.
            split: "train", "val" or "test".

        Returns:
            Inputs and targets as tensors.

        Raises:
            RequestError: There is no such client or split.
        """
        return self._examples(client, split, Chain.lend)

    def _examples(
        self, client: str, split: str, read: Callable[[Chain, NDArray[Any]], NDArray[Any]]
    ) -> Examples:
        rows = self.rows.rows(self._find(client), _split_number(split))
        return Examples(
            to_inputs(read(self.x, rows), self.normalize, self.precision or "float32"),
            to_targets(
                read(self.y, rows), classes=self.classes, precision=self.precision or "float32"
            ),
        )

    def check(self) -> Federation:
        """Check that the data can be used.

        Returns:
            This federation.

        Raises:
            DataError: They cannot; the message names the client and the row.
        """
        check_federation(self)
        return self

    def select(self, clients: Iterable[str]) -> Federation:
        """Return a federation of the given clients only.

        Args:
            clients: Ids of the clients to keep, each once.

        Returns:
            A federation that shares the arrays of this one.

        Raises:
            RequestError: There is no such client, one is given twice, or there are none.
        """
        chosen = tuple(clients)
        places = [self._find(client) for client in chosen]
        if len(set(chosen)) < len(chosen) or not chosen:
            raise RequestError(
                f"select needs at least one client and each only once; got {len(chosen)} names, "
                f"{len(set(chosen))} of them different."
            )
        rows = self.rows.pick(places, places)
        return replace(self, clients=chosen, rows=rows, recipe=self._then(select=list(chosen)))

    def retarget(
        self, *, seed: int = 0, pairs: Mapping[str, str] | None = None, fixed_points: bool = False
    ) -> Federation:
        """Evaluate clients on other clients' data: val and test move together, training data stay.

        Args:
            seed: Seed of the permutation; by default no client keeps its own val and test data.
            pairs: A permutation instead of a seed: `{"a": "b"}` evaluates a on b's data. Clients
                that are not named keep their own.
            fixed_points: Draw from all permutations, including those in which clients keep their
                own data.

        Returns:
            A federation with the same training data.

        Raises:
            RequestError: `pairs` is not a permutation.
        """
        step: dict[str, Any] = {"seed": seed, "fixed_points": fixed_points}
        if pairs is not None:
            judges, step = judges_from_pairs(self.clients, pairs), {"pairs": dict(pairs)}
        else:
            judges = judges_from_seed(self.clients, seed, fixed_points=fixed_points)
        held = [self._find(judges[client]) for client in self.clients]
        rows = self.rows.pick(range(len(held)), held)
        return replace(self, rows=rows, recipe=self._then(retarget=step))

    def augmented(self, *names: str) -> Federation:
        """Vary training images in every round; val and test images stay as they are.

        Args:
            *names: "flip" mirrors an image with probability 1/2; "crop" shifts it by up to an
                eighth of its size.

        Returns:
            A federation that shares the arrays of this one.

        Raises:
            RequestError: There is no such variation, or the inputs are not images.
        """
        chosen = check_augmentations(names, self.shape, self.name)
        return replace(self, augment=chosen, recipe=self._then(augment=list(chosen)))

    def share(
        self, *, beta: float = 0.05, alpha: float = 1.0, donors: Donors = "keep", seed: int = 0
    ) -> Federation:
        """Add rows of a shared pool to every client's training data; no row is copied.

        Args:
            beta: Size of the pool, as a share of all training rows. Classes are balanced as far as
                the data allow.
            alpha: Share of the pool that each client gets, drawn separately for each.
            donors: Whether the clients that the rows come from "keep" them or "give" them away.
            seed: Seed of the draw.

        Returns:
            A federation that shares the arrays of this one.

        Raises:
            RequestError: A share is not between 0 and 1.
        """
        rows = share_rows(self, beta=beta, alpha=alpha, donors=donors, seed=seed)
        step = {"beta": beta, "alpha": alpha, "donors": donors, "seed": seed}
        return replace(self, rows=rows, recipe=self._then(share=step))

    def histogram(self, split: str = "train") -> NDArray[np.int64]:
        """Count each client's labels; in a sequence every token counts.

        Args:
            split: "train", "val" or "test".

        Returns:
            An array [clients, classes].

        Raises:
            CapabilityError: The targets are values, not classes.
        """
        if self.classes is None:
            raise CapabilityError(f'"{self.name}" is a regression task and has no labels to count.')
        client_of, rows = self.rows.clients_of(_split_number(split))
        labels = self.y.take(rows).astype(np.int64).reshape(len(rows), -1)  # [rows, tokens]
        cells = client_of[:, None] * self.classes + labels
        counts = np.bincount(cells[labels >= 0], minlength=len(self.clients) * self.classes)
        return counts.reshape(len(self.clients), self.classes)

    def heterogeneity(self, split: str = "train") -> Heterogeneity:
        """Measure how much the clients differ in label distribution and size.

        Args:
            split: "train", "val" or "test".

        Returns:
            The measures; `summary()` describes them in words.
        """
        histogram = None if self.classes is None else self.histogram(split)
        return measure(histogram, self.rows.sizes[:, _split_number(split)])

    @property
    def answers(self) -> str:
        """What is predicted if it is not a class: "regression", "survival" or "3 labels"."""
        if self.schema is not None and self.schema.target.kind == "labels":
            return f"{len(self.schema.target.labels)} labels"
        return "survival" if self.survival else "regression"

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the rows of each client and split, and of their targets."""
        return assignment_hash(self)

    def manifest(self) -> dict[str, Any]:
        """Return everything that is needed to make the same split again, as JSON values."""
        return describe(self)

    def save_manifest(self, path: str | Path) -> None:
        """Write the manifest as JSON.

        Args:
            path: The file to write.
        """
        text = json.dumps(self.manifest(), indent=2, ensure_ascii=False)
        Path(path).write_text(text + "\n", encoding="utf-8")

    def verify(self, manifest: Mapping[str, Any]) -> Federation:
        """Raise an error unless this is the federation of `manifest`.

        Args:
            manifest: What `manifest` returned, or its JSON file holds.

        Returns:
            This federation.

        Raises:
            DataError: The data or the split are different.
        """
        require_same(self, manifest)
        return self

    def _then(self, **step: Any) -> dict[str, Any]:
        return {**self.recipe, "steps": [*self.recipe.get("steps", []), step]}

    def _repr_html_(self) -> str:
        """Show how many examples each client has."""
        sizes = {split: self.sizes(split) for split in SPLITS}
        what = "values" if self.classes is None else f"{self.classes} classes"
        about = f"{len(self.clients)} clients, {what}, inputs {'x'.join(map(str, self.shape))}"
        rows = [
            [split, sum(s.values()), min(s.values()), f"{median(s.values()):g}", max(s.values())]
            for split, s in sizes.items()
        ]
        spread = table(["split", "examples", "least", "median", "most"], rows)
        listed = [[c, *(sizes[split][c] for split in sizes)] for c in self.clients[:MOST_ROWS]]
        clients = table(["client", *sizes], listed, total=len(self.clients))
        split = faint(f"split {self.hash[:12]}")
        return box(title(self.name, about), spread, details("Clients", clients), split)

    def __repr__(self) -> str:
        train, val, test = self.rows.sizes.sum(axis=0).tolist()
        task = self.answers if self.classes is None else f"{self.classes} classes"
        return (
            f"<Federation {self.name}: {len(self.clients)} clients, "
            f"{train} train / {val} val / {test} test, x {self.shape}, {task}>"
        )


def _split_number(split: str) -> int:
    if split not in SPLITS:
        raise RequestError(f'no split is called "{split}"; {nearest(split, SPLITS)}')
    return SPLITS.index(split)
