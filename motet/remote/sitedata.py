"""The data of a federation whose clients are elsewhere: who reads what, and where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from motet.data import Split
from motet.data.federation import Federation
from motet.data.raw import SPLITS, Normalize
from motet.data.sources.arrays import About, Cell, assemble
from motet.data.sources.columns import encode_features
from motet.data.sources.common import split_names
from motet.data.sources.folder import client_cells
from motet.data.sources.table import read_table, require_columns
from motet.errors import DataError, RequestError
from motet.remote.outline import Form


class Sites(Protocol):
    """Says what everybody's examples look like, and reads one site's."""

    def form(self) -> Form:
        """Return the form of an example."""
        ...

    def clients(self) -> tuple[str, ...]:
        """Name the clients, where that is known without asking them; else nobody."""
        ...

    def load(self, client: str, place: str | None) -> Federation:
        """Read one client's data; `place` is where its site says they are."""
        ...


class Source(Protocol):
    """Data that can be loaded whole, such as the `[data]` of an ordinary config."""

    def federation(self) -> Federation:
        """Load them."""
        ...


@dataclass(frozen=True)
class Everywhere:
    """Data that every machine can load whole: a site uses those of the client with its name."""

    source: Source

    @cached_property
    def _federation(self) -> Federation:
        return self.source.federation()

    def form(self) -> Form:
        """Return the form of these data."""
        return Form.of(self._federation)

    def clients(self) -> tuple[str, ...]:
        """Name all clients."""
        return tuple(self._federation.clients)

    def load(self, client: str, place: str | None) -> Federation:
        """Pick one client's data, wherever the site is."""
        return self._federation.select([client])


@dataclass(frozen=True, kw_only=True)
class SiteData:
    """`[data]` of a deployment: what each site's examples look like; a site says where they are.

    Attributes:
        shape: Of one input.
        classes: Number of classes; None: values to predict.
        inputs: "numbers", or "tokens" (whole numbers, for sequence models).
        target_shape: Of one target; () unless targets are sequences.
        labels: Class names, in order; needed where a table's target is text.
        features: Input columns of a table, in order.
        target: Target column of a table.
        split: Column of a table that says train, val or test.
        val: Share to cut from the training examples for validation, where nothing else is given.
        test: Likewise.
        seed: Names the cut.
        mean: Taken from every input before it is divided by `std`, at every site alike.
        std: One number, or one per channel (a table's column).
    """

    shape: tuple[int, ...]
    classes: int | None = None
    inputs: Literal["numbers", "tokens"] = "numbers"
    target_shape: tuple[int, ...] = ()
    labels: tuple[str, ...] | None = None
    features: tuple[str, ...] | None = None
    target: str | None = None
    split: str | None = None
    val: float = 0.2
    test: float = 0.2
    seed: int = 0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    def form(self) -> Form:
        """Return what was agreed."""
        return Form(
            shape=self.shape,
            target_shape=self.target_shape,
            classes=self.classes,
            tokens=self.inputs == "tokens",
            labels=self.labels,
        )

    def clients(self) -> tuple[str, ...]:
        """Nobody is known before they come."""
        return ()

    def load(self, client: str, place: str | None) -> Federation:
        """Read a folder of arrays or a table, and refuse what was not agreed on."""
        if place is None:
            raise RequestError(
                'this site has no data: set data="..." in its node config, a folder with train.npz '
                "or a .csv or .parquet table."
            )
        path = Path(place)
        cells = list(client_cells(path, client)) if path.is_dir() else self._table(path, client)
        federation = assemble(cells, [client], self._about(cells))
        self._check(federation)
        return federation

    def _about(self, cells: list[Cell]) -> About:
        only_train = all(cell.split == "train" for cell in cells)
        plain = self.mean == (0.0,) and self.std == (1.0,)
        return About(
            name="site",
            source={"from": "site"},
            split=Split(self.val, self.test) if only_train else None,
            seed=self.seed,
            classes=self.classes,
            labels=self.labels,
            normalize=None if plain else Normalize(self.mean, self.std),
        )

    def _table(self, path: Path, client: str) -> list[Cell]:
        if self.features is None or self.target is None:
            raise RequestError("[data] needs features= and target= before a site can give a table.")
        table = read_table(path)
        require_columns(table, [*self.features, self.target, *filter(None, [self.split])])
        ids = np.full(len(table), client)
        x, _ = encode_features(table, self.features, (), ids, "error")
        y = self._targets(table[self.target].to_pylist())
        if self.split is None:
            return [Cell(client, "train", x, y)]
        parts = split_names(table[self.split].to_pylist())
        rows = {split: np.flatnonzero(parts == split) for split in SPLITS}
        return [Cell(client, split, x[rows[split]], y[rows[split]]) for split in SPLITS]

    def _targets(self, values: list[Any]) -> NDArray[Any]:
        if self.labels is None:
            return np.asarray(values, np.float32 if self.classes is None else np.int64)
        place: Mapping[str, int] = {label: number for number, label in enumerate(self.labels)}
        unknown = sorted({str(value) for value in values} - place.keys())
        if unknown:
            raise DataError(
                f'the target "{unknown[0]}" is none of the agreed labels: {", ".join(place)}.'
            )
        return np.asarray([place[str(value)] for value in values], np.int64)

    def _check(self, federation: Federation) -> None:
        agreed, came = asdict(self.form()), asdict(Form.of(federation))
        for name in agreed:
            if came[name] != agreed[name]:
                raise DataError(
                    f"{name} {agreed[name]} was agreed on; {came[name]} came. Mend the site's "
                    "data, or [data] for everybody."
                )
