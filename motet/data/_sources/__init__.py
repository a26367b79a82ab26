"""Sources of federations: arrays, rows, tables, folders and data sets of other libraries."""

from __future__ import annotations

from motet.data._sources.arrays import from_arrays
from motet.data._sources.folder import from_folder
from motet.data._sources.hugging_face import from_hf
from motet.data._sources.ranges import from_ranges
from motet.data._sources.rows import from_rows
from motet.data._sources.table import from_table
from motet.data._sources.texts import from_texts
from motet.data._sources.torch_dataset import from_dataset

__all__ = [
    "from_arrays",
    "from_dataset",
    "from_folder",
    "from_hf",
    "from_ranges",
    "from_rows",
    "from_table",
    "from_texts",
]
