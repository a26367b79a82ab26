"""The categories of a column: spellings merged, and rare ones put together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from motet._core.text import plural
from motet.data._tables.cells import Cells
from motet.data._tables.fixes import fix
from motet.data._tables.spellings import merged
from motet.errors import DataError

MANY_CATEGORIES = 50


class Categories(NamedTuple):
    """How the categories of a column are chosen."""

    rare: float = 0
    ignore_case: bool = True


class Chosen(NamedTuple):
    """The categories of a column, the number of rare ones, and remarks."""

    kept: tuple[str, ...]
    rare: int
    remarks: tuple[str, ...]


def choose_categories(name: str, given: Cells, rows: int, how: Categories) -> Chosen:
    """Merge spellings, and put rare categories together."""
    found = merged(given, ignore_case=how.ignore_case)
    cells, counts = found.cells, found.cells.counts()
    if not cells.values:
        raise DataError(
            f'column "{name}" has no value in any row. Leave it out with {fix("drop", name)}.'
        )
    least = how.rare * rows if 0 < how.rare < 1 else how.rare
    kept = [text for text, count in zip(cells.values, counts, strict=True) if count >= least]
    if not kept:
        raise DataError(
            f'column "{name}" has no category with {least:g} rows or more; the most frequent has '
            f"{counts.max()}. Lower the limit with {fix('rare', int(counts.max()))}, or leave the "
            f"column out with {fix('drop', name)}."
        )
    rare = len(cells.values) - len(kept)
    merges = found.remark(f'column "{name}"')
    remarks = [*([merges] if merges else []), *_on_categories(name, len(kept), rare, least)]
    return Chosen(tuple(kept), rare, tuple(remarks))


def _on_categories(name: str, kept: int, rare: int, least: float) -> Iterator[str]:
    if rare:
        yield (
            f'column "{name}": {plural(rare, "rare category").replace("categorys", "categories")} '
            f"with fewer than {least:g} rows share one input."
        )
    if kept > MANY_CATEGORIES:
        yield (
            f'column "{name}" has {kept} categories, each an input of its own. Put rare ones '
            f"together with {fix('rare', 10)}, or leave the column out with {fix('drop', name)}."
        )
