"""A site's own table: targets, statistics of its own, and the aggregates that it may send."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motet.data._schema import Schema
from motet.data._tables.aggregates import Aggregates, aggregate, medians_of
from motet.data._tables.cells import (
    MissingValues,
    exact_spelling,
    is_numeric,
    numbers_of,
    numeric_values,
    plain,
    same_spelling,
    to_cells,
)
from motet.data._tables.multi_label import read_labels
from motet.data._tables.opened import Opened
from motet.data._tables.options import filling_of, standardize_of
from motet.data._tables.sending import SiteStatistics
from motet.data._tables.statistics import base_values, is_one_hot, scaled, spread_out
from motet.data._tables.survival import read_survival
from motet.errors import DataError


@dataclass(frozen=True)
class SiteRows:
    """The rows of one site.

    Attributes:
        schema: What was agreed on.
        opened: The site's table.
        y: Targets.
        rows: Row numbers by split.
    """

    schema: Schema
    opened: Opened
    y: NDArray[Any]
    rows: dict[str, NDArray[np.int64]]

    @property
    def training(self) -> Any:
        """The training rows, as a table."""
        return self.opened.table.take(np.sort(self.rows["train"]))


def site_targets(schema: Schema, opened: Opened) -> NDArray[Any]:
    """Read the target of a site's table as the agreed classes or numbers."""
    target, column = schema.target, plain(opened.table[schema.target.name])
    missing = MissingValues(schema.na)
    if target.kind == "survival":
        y: NDArray[Any] = read_survival(
            target, opened.table, missing, opened.decimal, opened.row_name
        )
        holes = np.isnan(y).any(axis=1)
    elif target.kind == "labels":
        y = read_labels(target, opened.table, missing, opened.row_name)
        holes = np.isnan(y).any(axis=1)
    elif target.kind == "regression":
        cells = None if is_numeric(column) else to_cells(column, missing)
        y = (
            numeric_values(column, missing)
            if cells is None
            else cells.look_up(numbers_of(cells, ".")[0])
        )
        holes = np.isnan(y)
        y = y.astype(np.float32)
    else:
        cells = to_cells(column, missing)
        key = same_spelling if schema.merge_spellings else exact_spelling
        place = {key(label): number for number, label in enumerate(target.labels)}
        place |= {key(t): place[key(label)] for t, label in target.mapping.items()}
        for code, text in enumerate(cells.values):
            if key(text) not in place:
                raise DataError(
                    f'the target "{text}" is none of the agreed labels: '
                    f"{', '.join(target.labels)}. Correct {opened.row_name(cells.first(code))}."
                )
        y = np.asarray([*(place[key(text)] for text in cells.values), -1])[cells.codes]
        holes = y < 0
    if holes.any():
        raise DataError(
            f'{opened.row_name(int(holes.argmax()))} has no target: column "{target.name}" is '
            "empty or not a number there. Remove the row."
        )
    return y


def site_statistics(
    found: SiteRows, client: str, missing: str | float, thresholds: dict[str, list[float]] | None
) -> SiteStatistics:
    """Compute what a site sends so that statistics can be agreed on.

    Args:
        found: Its rows.
        client: Its name.
        missing: How missing values are filled.
        thresholds: The question to answer; None: none was asked.
    """
    return SiteStatistics.of(
        without_statistics(found.schema),
        client,
        found.opened.table,
        found.training,
        thresholds=thresholds,
        medians=missing == "client-median",
    )


def _aggregates(found: SiteRows, client: str) -> Aggregates:
    draft = without_statistics(found.schema)
    return aggregate(draft, found.training, sites=(client,), row_name=found.opened.row_name)


def without_statistics(schema: Schema) -> Schema:
    """Remove fills, scales, ranges and indicators from a schema."""
    columns = tuple(replace(c, indicator=False, low=None, high=None) for c in schema.columns)
    return replace(
        schema, columns=columns, fills=None, scaling=None, site_fills={}, site_scaling={}
    )


def own_statistics(
    found: SiteRows,
    client: str,
    missing: str | float,
    standardize: bool | str,  # noqa: FBT001
) -> Schema:
    """Replace statistics of the federation by the site's own where it was agreed to use those."""
    agreed, filling = found.schema, filling_of(missing, indicators=False)
    scale = standardize_of(standardize)
    if not filling.own and scale != "site":
        return agreed
    moments = _aggregates(found, client)
    fills = base_values(agreed, agreed.fills)
    if filling.own and agreed.fills is not None:
        draft = without_statistics(agreed)
        own = moments.mean[0] if filling.by == "mean" else medians_of(draft, found.training)
        fills = np.where((moments.known[0] > 0) & ~is_one_hot(draft), own, fills)
        agreed = replace(agreed, fills=spread_out(agreed, fills))
    if scale == "site":
        scaling = scaled(agreed, moments, fills[None], "site").site_scaling[client]
        agreed = replace(agreed, scaling=scaling)
    return agreed
