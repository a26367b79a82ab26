"""From an opened table to a federation: sites, target, columns, split, statistics, inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motet._core.text import plural
from motet.data._divide import Allotment, allot_sites
from motet.data._partition.counts import stable_order
from motet.data._raw import Raw
from motet.data._schema import Schema
from motet.data._sources.common import split_codes
from motet.data._split import Split
from motet.data._tables.aggregates import Aggregates, aggregate, block_of, medians_of
from motet.data._tables.blocks import Noticed, counted
from motet.data._tables.cells import Cells, MissingValues, is_opaque, to_cells
from motet.data._tables.choosing import choose_columns, in_their_spelling, with_commas
from motet.data._tables.encode import encode_rows
from motet.data._tables.fixes import fix, switched
from motet.data._tables.inspection import inspect
from motet.data._tables.kinds import find_columns
from motet.data._tables.opened import Opened
from motet.data._tables.options import TableOptions
from motet.data._tables.reading import Reading, keeps_columns
from motet.data._tables.spellings import merged
from motet.data._tables.statistics import Medians, finish
from motet.data._tables.targets import Answer, read_target
from motet.errors import DataError

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Prepared:
    """A table that is ready to be a federation.

    Attributes:
        raw: Inputs and targets.
        allotment: Rows of each site and split.
        schema: How the inputs were made.
        remarks: What the owner of the data should know.
        table: The rows that are used, as they were read.
        aggregates: Of the training rows of each site.
        name: Name of the data.
        format: How they were read.
    """

    raw: Raw
    allotment: Allotment
    schema: Schema
    remarks: tuple[str, ...]
    table: Any
    aggregates: Aggregates
    name: str
    format: str


def prepare(
    opened: Opened, client: str, split: Split | str | None, options: TableOptions, seed: int
) -> Prepared:
    """Read sites, target and inputs of a table, and cut its rows."""
    split_column = split if isinstance(split, str) else None
    options = replace(options, decimal=opened.decimal, units={**options.units, **opened.units})
    options, client, split_column, renamed = in_their_spelling(
        opened.table, with_commas(options, opened.table), client, split_column
    )
    chosen = choose_columns(
        opened.table,
        client,
        split_column,
        options,
        has_header=opened.has_header,
        row_name=opened.row_name,
    )
    table, row_name = opened.table, opened.row_name
    remarks = [*opened.remarks, *renamed]
    sites = _read_sites(table, client, options, remarks)
    answer = read_target(table, options, row_name)
    remarks += answer.remarks
    keep = _rows_to_keep(sites, answer, client, options, row_name, remarks)
    if keep is not None:
        table, row_name = table.take(keep), _renamed(row_name, keep)
        sites = Cells(sites.codes[keep], sites.values)
        answer = answer._replace(y=answer.y[keep])
    row_name = _with_site(row_name, sites)
    columns, more = find_columns(table, chosen, options, row_name)
    remarks += more
    raw = _raw(table, answer, split_column, row_name)
    cut = split if isinstance(split, Split) else Split(test="official" if split_column else 0.2)
    draft = Schema(
        columns=columns,
        target=answer.target,
        client=client,
        na=options.na,
        merge_spellings=options.merge_spellings,
        decimal=options.decimal,
    )
    reading: Reading | None = {} if keeps_columns(table, len(columns)) else None
    allotment = allot_sites(raw, sites.codes.astype(np.int64), sites.values, cut, seed)
    _remark_absent(sites, allotment, remarks)
    aggregates = aggregate_training(draft, table, allotment, row_name, reading)
    schema = finish(
        draft,
        aggregates,
        options.filling,
        options.standardize,
        training_medians(draft, table, allotment, reading, own=options.filling.own)
        if options.filling.by == "median"
        else None,
    )
    encoded = encode_rows(schema, table, sites, row_name, counted, reading)
    remarks += inspect(
        schema, table, encoded.x, answer.y, allotment.rows, allotment.clients, options.few_test_rows
    )
    remarks += _on_filling(encoded.remarks)
    return Prepared(
        raw=replace(raw, x=encoded.x),
        allotment=allotment,
        schema=schema,
        remarks=tuple(remarks),
        table=table,
        aggregates=aggregates,
        name=opened.name,
        format=opened.format,
    )


def _read_sites(
    table: Any,
    client: str,
    options: TableOptions,
    remarks: list[str],
) -> Cells:
    if is_opaque(table[client]):
        raise DataError(
            f'column "{client}" should name the client of each row, got {table[client].type}. Name '
            f"another column with {fix('client', 'COLUMN')}."
        )
    found = merged(
        to_cells(table[client], MissingValues(options.na)), ignore_case=options.merge_spellings
    )
    remark = found.remark(f'column "{client}"')
    remarks += [remark] if remark else []
    names = sorted(found.cells.values)  # by letter, as the sites of a federation always are
    place = {name: number for number, name in enumerate(names)}
    codes = np.asarray([*(place[name] for name in found.cells.values), -1], np.int32)
    if not names:
        raise DataError(
            f'column "{client}" names no client in any row. Name another column with '
            f"{fix('client', 'COLUMN')}."
        )
    return Cells(codes[found.cells.codes], tuple(names))


def _rows_to_keep(
    sites: Cells,
    answer: Answer,
    client: str,
    options: TableOptions,
    row_name: Callable[[int], str],
    remarks: list[str],
) -> Rows | None:
    """Find rows without site or target; None keeps all."""
    drop = np.zeros(len(sites.codes), bool)
    for what, column, holes, switch, allowed in (
        ("client", client, sites.codes < 0, "drop_missing_client", options.drop_missing_client),
        (
            "target",
            '" or "'.join(options.targets),
            answer.holes,
            "drop_missing_target",
            options.drop_missing_target,
        ),
    ):
        if not holes.any():
            continue
        first, count = row_name(int(holes.argmax())), int(holes.sum())
        if holes.all():
            raise DataError(
                f'column "{column}" has no value in any row, so it names no {what}. Name another '
                f"column with {fix('client' if what == 'client' else 'target', 'COLUMN')}."
            )
        if not allowed:
            others = f" ({plural(count, 'row')} in all)" if count > 1 else ""
            raise DataError(
                f'{first} has no {what}: column "{column}" is empty there{others}. Drop such rows '
                f"with {switched(switch, on=True)}."
            )
        drop |= holes
        remarks.append(f"{plural(count, 'row')} without a {what} dropped, the first is {first}.")
    if drop.all():
        raise DataError("no row has both a client and a target.")
    return np.flatnonzero(~drop) if drop.any() else None


def _with_site(row_name: Callable[[int], str], sites: Cells) -> Callable[[int], str]:
    return lambda row: f'{row_name(row)} (client "{sites.values[sites.codes[row]]}")'


def _renamed(row_name: Callable[[int], str], keep: Rows) -> Callable[[int], str]:
    return lambda row: row_name(int(keep[row]))


def _raw(
    table: Any, answer: Answer, split_column: str | None, row_name: Callable[[int], str]
) -> Raw:
    split = None
    if split_column is not None:
        split = split_codes(to_cells(table[split_column], MissingValues()), split_column, row_name)
    return Raw(
        x=np.empty((len(answer.y), 0), np.float32),
        y=answer.y,
        split=split,
        labels=answer.labels,
        classes=answer.classes,
        survival=answer.target.kind == "survival",
    )


def _remark_absent(sites: Cells, allotment: Allotment, remarks: list[str]) -> None:
    there = set(allotment.clients)
    absent = [name for name in sites.values if name not in there]
    if absent:
        remarks.append(
            f'{plural(len(absent), "site")} without training rows left out, such as "{absent[0]}".'
        )


def aggregate_training(
    schema: Schema,
    table: Any,
    allotment: Allotment,
    row_name: Callable[[int], str],
    reading: Reading | None = None,
) -> Aggregates:
    """Aggregate the training rows of each site."""
    site, rows = allotment.rows.clients_of(0)
    return aggregate(
        schema, table, site, allotment.clients, rows=rows, row_name=row_name, reading=reading
    )


def training_medians(
    draft: Schema, table: Any, allotment: Allotment, reading: Reading | None = None, *, own: bool
) -> Medians:
    """Compute medians of training rows, over all sites and of each."""
    site, rows = allotment.rows.clients_of(0)
    overall, sites = medians_of(draft, table, rows, reading), len(allotment.clients)
    if not own:
        return Medians(overall)
    each: list[NDArray[np.float64]] = []
    for column in draft.columns:
        if column.kind == "categorical":
            each += [np.zeros(sites)] * len(column.features)
            continue
        block = block_of(draft, table, column, rows, Noticed(counted, [], counted), reading)
        each += [
            _medians_by_site(values, site, sites)
            for values in np.asarray(block.values, np.float64).T
        ]
    return Medians(overall, np.stack(each, axis=1))


def _medians_by_site(values: NDArray[np.float64], site: Rows, sites: int) -> NDArray[np.float64]:
    """Compute the median of each site's known values, from one sort; NaN if there are none."""
    there = ~np.isnan(values)
    values, site = values[there], site[there]
    order = np.argsort(values)
    order = order[stable_order(site[order], sites)]  # much faster than np.lexsort
    counts = np.bincount(site, minlength=sites)
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    ranked = np.append(values[order], np.nan)
    lower, upper = starts + np.maximum(counts - 1, 0) // 2, starts + counts // 2
    last = len(ranked) - 1
    middle = (ranked[np.minimum(lower, last)] + ranked[np.minimum(upper, last)]) / 2
    return np.where(counts > 0, middle, np.nan)


def _on_filling(noticed: Sequence[Any]) -> list[str]:
    """Say how many values were filled, in one sentence for all columns."""
    filled = [(remark.column, remark.rows) for remark in noticed if remark.what == "filled"]
    if not filled:
        return []
    total = sum(rows for _, rows in filled)
    most = max(filled, key=lambda pair: pair[1])
    return [
        f"{plural(total, 'missing value')} filled in {plural(len(filled), 'column')}, most in "
        f'"{most[0]}" ({most[1]}).'
    ]
