"""Arrow tables whose columns have types that all functions know."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def read_parquet(path: Path) -> Any:
    """Read a Parquet file."""
    from pyarrow import ArrowInvalid, parquet

    try:
        return parquet.read_table(path)
    except ArrowInvalid:  # columns of one name, which is said later
        with parquet.ParquetFile(path) as file:
            return file.read()


def with_plain_text(table: Any) -> Any:
    """Turn polars' own form of text, also in its categories, into one that all functions know.

    The same goes for values that are stored once for several rows, and for text that a program
    has stored as bytes.
    """
    import pyarrow
    from pyarrow import compute, string, types

    for place, field in enumerate(table.schema):
        column, is_coded = table.column(place), types.is_dictionary(field.type)
        if is_coded and types.is_string_view(field.type.value_type):
            chunks = [
                chunk.dictionary.cast(string()).take(chunk.indices) for chunk in column.chunks
            ]
            table = table.set_column(place, field.name, pyarrow.chunked_array(chunks, string()))
        elif types.is_run_end_encoded(field.type):
            table = table.set_column(place, field.name, compute.run_end_decode(column))
        elif types.is_string_view(field.type):
            table = table.set_column(place, field.name, column.cast(string()))
        elif types.is_binary(field.type) or types.is_large_binary(field.type):
            table = table.set_column(place, field.name, _decoded(column))
    return table


def _decoded(column: Any) -> Any:
    from pyarrow import ArrowInvalid, string

    try:
        return column.cast(string())
    except ArrowInvalid:  # not UTF-8: bytes in earnest
        return column
