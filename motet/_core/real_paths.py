"""Paths: without links, and what was meant where there is nothing."""

from __future__ import annotations

import os
from difflib import get_close_matches
from itertools import islice
from pathlib import Path

MOST_LOOKED_AT = 10_000  # files of a folder


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


def did_you_mean(path: str | Path) -> str:
    """Ask about the name that is nearest to a path that is not there; "" if there is none.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     (Path(folder) / "patients.csv").touch()
    ...     did_you_mean(Path(folder) / "Patient.csv").replace(folder, "data")
    ' Did you mean data/patients.csv?'
    """
    asked = Path(path)
    try:
        missing = next((p for p in reversed([asked, *asked.parents]) if not p.exists()), asked)
        beside = {p.name.lower(): p for p in islice(missing.parent.iterdir(), MOST_LOOKED_AT)}
    except (OSError, ValueError):  # no permission, or not a path
        return ""
    spaced = [p for p in beside.values() if p.name.startswith(f"{missing.name} ")]
    if len(spaced) == 1:
        return f" Did you mean '{spaced[0]}'? A path with spaces needs quotes."
    close = get_close_matches(missing.name.lower(), beside, n=1, cutoff=0.7)
    if not close or beside[close[0]] == asked:
        return ""
    found = beside[close[0]]
    whole = found / asked.relative_to(missing)
    return f" Did you mean {whole if whole.exists() else found}?"
