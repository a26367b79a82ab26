"""Federations: data sets, sources and partitions that give every client its own examples."""

from __future__ import annotations

from motet.data._columns import Column, Encoded, Remark, Scaling, Target
from motet.data._federation import Examples, Federation
from motet.data._heterogeneity import Heterogeneity
from motet.data._manifest import rebuild
from motet.data._partition import (
    IID,
    Dirichlet,
    Latent,
    Natural,
    Partition,
    Pathological,
    QuantitySkew,
    TwoLevelDirichlet,
    partition_named,
)
from motet.data._partition.embedding import Embedding, Trained
from motet.data._raw import Normalize, Raw
from motet.data._registry import Dataset, dataset, load, names
from motet.data._schema import Schema
from motet.data._sources import (
    from_arrays,
    from_dataset,
    from_folder,
    from_hf,
    from_ranges,
    from_rows,
    from_table,
    from_texts,
)
from motet.data._split import Split

__all__ = [
    "IID",
    "Column",
    "Dataset",
    "Dirichlet",
    "Embedding",
    "Encoded",
    "Examples",
    "Federation",
    "Heterogeneity",
    "Latent",
    "Natural",
    "Normalize",
    "Partition",
    "Pathological",
    "QuantitySkew",
    "Raw",
    "Remark",
    "Scaling",
    "Schema",
    "Split",
    "Target",
    "Trained",
    "TwoLevelDirichlet",
    "dataset",
    "from_arrays",
    "from_dataset",
    "from_folder",
    "from_hf",
    "from_ranges",
    "from_rows",
    "from_table",
    "from_texts",
    "load",
    "names",
    "partition_named",
    "rebuild",
]
