"""Columns of a large table as numbers, each read once."""

from __future__ import annotations

from typing import Any, TypeAlias

from motet.data._tables.blocks import Block

MANY_ROWS = 100_000  # below this, threads cost more than they save
MOST_CELLS = 1 << 25  # that are kept as numbers; columns of larger tables are read when needed

Reading: TypeAlias = dict[str, Block]  # by the name of the column


def keeps_columns(table: Any, columns: int) -> bool:
    """Tell whether columns that are read as numbers are worth the memory."""
    return len(table) >= MANY_ROWS and len(table) * columns <= MOST_CELLS
