"""Federations: every client with its own examples."""

from __future__ import annotations

from motet.data.federation import Examples, Federation
from motet.data.heterogeneity import Heterogeneity
from motet.data.manifest import rebuild
from motet.data.partition import (
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
from motet.data.raw import Normalize, Raw
from motet.data.registry import Dataset, dataset, load, names
from motet.data.sources import (
    from_arrays,
    from_dataset,
    from_folder,
    from_hf,
    from_ranges,
    from_rows,
    from_table,
)
from motet.data.split import Split

__all__ = [
    "IID",
    "Dataset",
    "Dirichlet",
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
    "Split",
    "TwoLevelDirichlet",
    "dataset",
    "from_arrays",
    "from_dataset",
    "from_folder",
    "from_hf",
    "from_ranges",
    "from_rows",
    "from_table",
    "load",
    "names",
    "partition_named",
    "rebuild",
]
