"""Absolute paths without links."""

from __future__ import annotations

import os
from pathlib import Path


def real_path(path: str | Path) -> Path:
    """Follow the links of a path; a loop of links stays, for whoever opens it to report.

    `Path.resolve` raises RuntimeError for one, which says nothing about files.

    >>> real_path("/").is_absolute()
    True
    """
    return Path(os.path.realpath(path))


def looks_like_a_table(path: str | Path) -> bool:
    """Return whether a path ends as those of tables do, to tell people how to name one.

    >>> looks_like_a_table("visits.CSV"), looks_like_a_table("study.toml")
    (True, False)
    """
    endings = (".csv", ".tsv", ".xlsx", ".parquet", ".feather", ".gz")
    return str(path).lower().endswith(endings)
