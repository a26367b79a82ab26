"""Where federations come from: arrays, rows, tables, folders and data sets of other libraries."""

from __future__ import annotations

from motet.data.sources.arrays import from_arrays
from motet.data.sources.folder import from_folder
from motet.data.sources.hugging_face import from_hf
from motet.data.sources.ranges import from_ranges
from motet.data.sources.rows import from_rows
from motet.data.sources.table import from_table
from motet.data.sources.torch_dataset import from_dataset

__all__ = [
    "from_arrays",
    "from_dataset",
    "from_folder",
    "from_hf",
    "from_ranges",
    "from_rows",
    "from_table",
]
