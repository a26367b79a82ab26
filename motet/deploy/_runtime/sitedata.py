"""The data of a deployment's sites, and how each site reads its own."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from motet._core.keys import Key
from motet.data import Column, Schema, Split, Target
from motet.data._columns import TargetKind
from motet.data._federation import Federation
from motet.data._raw import SPLITS, Normalize
from motet.data._sources.arrays import About, Cell, assemble
from motet.data._sources.common import split_codes
from motet.data._sources.folder import client_cells
from motet.data._tables.cells import MissingValues, to_cells
from motet.data._tables.choosing import require_columns
from motet.data._tables.files import read_file
from motet.data._tables.opened import HowToRead
from motet.data._tables.options import Missing, Standardize
from motet.data._tables.site import SiteRows, own_statistics, site_targets
from motet.data._tables.sources import without_footer
from motet.deploy._runtime.data_schema import DataSchema
from motet.errors import DataError, RequestError


class Sites(Protocol):
    """Says what everybody's examples look like, and reads one site's."""

    def data_schema(self) -> DataSchema:
        """Return the schema of an example."""
        ...

    def clients(self) -> tuple[str, ...]:
        """Name the clients, if they are known without asking them; else ()."""
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

    def data_schema(self) -> DataSchema:
        """Return the schema of these data."""
        return DataSchema.of(self._federation)

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
        target: Target column of a table; several are labels, and need `schema`.
        split: Column of a table that says train, val or test.
        val: Share to cut from the training examples for validation, where nothing else is given.
        test: Likewise.
        seed: Names the cut.
        schema: How a table's raw rows become inputs, as the JSON text of a `motet.data.Schema`.
        missing: How missing numbers are filled; a site computes "client-..." fills itself.
        indicators: Whether columns with missing values get an input that marks them.
        standardize: Whose statistics scale inputs; a site computes those for "site" itself.
        rare: Categories with fewer rows share one input, when statistics are agreed on.
        mean: Taken from every input before it is divided by `std`, at every site alike.
        std: One number, or one per channel (a table's column).
    """

    shape: tuple[int, ...]
    classes: int | None = None
    inputs: Literal["numbers", "tokens"] = "numbers"
    target_shape: tuple[int, ...] = ()
    labels: tuple[str, ...] | None = None
    features: tuple[str, ...] | None = None
    target: str | tuple[str, ...] | None = None
    split: str | None = None
    val: float = 0.2
    test: float = 0.2
    seed: int = 0
    schema: str | None = None
    missing: Missing | float = "error"
    indicators: bool = False
    standardize: bool | Standardize = False
    rare: float = 0.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    def data_schema(self) -> DataSchema:
        """Return what was agreed."""
        return DataSchema(
            shape=self.shape,
            target_shape=self.target_shape,
            classes=self.classes,
            tokens=self.inputs == "tokens",
            labels=self.labels,
        )

    def clients(self) -> tuple[str, ...]:
        """Return nothing: clients are not known before they connect."""
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

    def table_schema(self) -> Schema:
        """Return how a site's table becomes inputs: as agreed, or numbers in the given columns."""
        if self.schema is not None:
            try:
                return Schema.from_dict(json.loads(self.schema))
            except (ValueError, RecursionError):
                raise RequestError("schema of [data] is not JSON.") from None
        if self.features is None or not isinstance(self.target, str):
            raise RequestError("[data] needs schema= before a site can give a table.")
        kind: TargetKind = "regression" if self.classes is None else "classes"
        labels = self.labels or tuple(map(str, range(self.classes or 0)))
        return Schema(
            columns=tuple(Column(name=name) for name in self.features),
            target=Target(name=self.target, kind=kind, labels=labels),
        )

    def read_rows(self, path: Path, client: str) -> SiteRows:
        """Read a site's table, and cut its rows."""
        schema = self.table_schema()
        how = HowToRead.for_schema(schema)
        opened = without_footer(read_file(path, how), how, schema.client)
        names = [column.name for column in schema.columns]
        needed = [*names, *schema.target.columns, *filter(None, [self.split])]
        require_columns(opened.table, needed)
        y = site_targets(schema, opened)
        if self.split is not None:
            cells = to_cells(opened.table[self.split], MissingValues())
            parts = split_codes(cells, self.split, opened.row_name)
            rows: dict[str, NDArray[np.int64]] = {
                split: np.flatnonzero(parts == split) for split in SPLITS
            }
        else:
            labels = np.zeros(len(y)) if self.classes is None else y
            key = Key(self.seed).fold("data", "split", client)
            cut = Split(self.val, self.test).cut(labels, key)
            rows = {split: np.sort(part) for split, part in zip(SPLITS, cut, strict=True)}
        return SiteRows(schema, opened, y, rows)

    def _table(self, path: Path, client: str) -> list[Cell]:
        found = self.read_rows(path, client)
        schema = self._own_schema(found, client)
        x = schema.encode(found.opened.table, client, row_name=found.opened.row_name).x
        y, rows = found.y, found.rows
        return [Cell(client, split, x[rows[split]], y[rows[split]]) for split in SPLITS]

    def own_schema(self, path: Path, client: str) -> Schema:
        """Return how a site's table becomes inputs there, with its own statistics if agreed on."""
        return self._own_schema(self.read_rows(path, client), client)

    def _own_schema(self, found: SiteRows, client: str) -> Schema:
        return own_statistics(found, client, self.missing, self.standardize)

    def _check(self, federation: Federation) -> None:
        agreed, found = asdict(self.data_schema()), asdict(DataSchema.of(federation))
        for name in agreed:
            if found[name] != agreed[name]:
                raise DataError(
                    f"{name} {agreed[name]} was agreed on; got {found[name]}. Fix the site's "
                    "data, or [data] for all sites."
                )
