"""Parquet files of Motet's own: read without a thread of Arrow's."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def read_own_parquet(path: Path) -> Any:
    """Read a small Parquet file as an Arrow table.

    A thread of Arrow's that is still there when the program ends may abort it (apache/arrow issue
    34314), so none is started. The bytes are read by Python: a path would be opened as a data set,
    which costs another import.
    """
    import pyarrow as pa
    from pyarrow import parquet

    source = pa.BufferReader(path.read_bytes())
    return parquet.read_table(source, use_threads=False, pre_buffer=False)
