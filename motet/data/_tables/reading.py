"""Columns of a large table as numbers, each read once."""

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


def read_columns(draft: Schema, table: Any, row_name: RowName) -> Reading:
    """Read the columns of a schema without statistics, in threads; empty if it is not worth it."""
    rows = len(table)
    if rows < MANY_ROWS or rows * len(draft.columns) > MOST_CELLS:
        return {}
    noticed = Noticed(row_name, [], counted)
    # Not while rows are allotted: the threads would wait for one another, and take longer together.
    with ThreadPoolExecutor(2) as pool:
        return {
            column.name: pool.submit(read_block, draft, column, table[column.name], noticed)
            for column in draft.columns
        }
