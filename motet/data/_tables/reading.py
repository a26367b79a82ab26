"""Columns of a large table as numbers, each read once, while rows are allotted to sites."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeAlias

from motet.data._tables.blocks import Block, Noticed, counted, read_block
from motet.data._tables.cells import RowName

if TYPE_CHECKING:  # a schema encodes rows, so it cannot be imported here
    from motet.data._schema import Schema

MANY_ROWS = 100_000  # below this, threads cost more than they save
MOST_CELLS = 1 << 25  # that are kept as numbers; columns of larger tables are read when needed

Reading: TypeAlias = Mapping[str, "Future[Block]"]


def start_reading(draft: Schema, table: Any, row_name: RowName) -> Reading:
    """Start to read the columns of a schema without statistics; empty if it is not worth it."""
    rows = len(table)
    if rows < MANY_ROWS or rows * len(draft.columns) > MOST_CELLS:
        return {}
    noticed, pool = Noticed(row_name, [], counted), ThreadPoolExecutor(2)
    started = {
        column.name: pool.submit(read_block, draft, column, table[column.name], noticed)
        for column in draft.columns
    }
    pool.shutdown(wait=False)  # ends its threads once all is read
    return started
