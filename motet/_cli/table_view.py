"""The columns of a table in the terminal: kind, inputs, missing values and differences."""

from __future__ import annotations

from rich.table import Table

from motet._cli.pictures import bars
from motet._cli.terminal import console, show
from motet._core.text import listed
from motet._core.visible_text import visible
from motet.data import Federation, Schema
from motet.data._tables.overview import ColumnOverview, overview

MOST_COLUMNS = 60
MOST_BARS = 12  # sites drawn next to each other


def show_columns(federation: Federation) -> None:
    """Draw what is used of a table: a line per column."""
    schema, aggregates = federation.schema, federation.aggregates
    assert schema is not None
    assert aggregates is not None
    found = overview(schema, aggregates)
    drawn = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for title in ("column", "kind"):
        drawn.add_column(title, no_wrap=True, overflow="ellipsis", max_width=18)
    drawn.add_column("becomes", ratio=1, overflow="fold")
    drawn.add_column("missing", justify="right", no_wrap=True)
    drawn.add_column("fill", no_wrap=True, overflow="ellipsis", max_width=10)
    drawn.add_column("differs most", no_wrap=True, overflow="ellipsis", max_width=20)
    for column in found.columns[:MOST_COLUMNS]:
        site = visible(found.sites[column.most_shifted])
        differs = f"{column.largest_shift:.1f} {site}" if column.largest_shift >= 0.05 else ""
        drawn.add_row(
            visible(column.name),
            column.kind,
            visible(column.inputs),
            _missing(column, found.rows.tolist()),
            visible(column.fill),
            differs,
        )
    show("")
    console().print(drawn, markup=False)
    hidden = len(found.columns) - MOST_COLUMNS
    source = federation.recipe.get("source", {})
    scaled = {True: "over all sites", "federation": "over all sites", "site": "by each site"}
    scale = scaled.get(source.get("standardize"), "no")
    show(
        (f"{hidden} more columns.\n" if hidden > 0 else "") + f"\n{_target(schema)}, sites from "
        f'"{schema.client}"; read as {source.get("format", "a table")}; standardized: {scale}.\n'
        "differs most: distance of the site's mean from all sites' in standard deviations, or of "
        "its categories (0 to 1)."
    )


def _target(schema: Schema) -> str:
    if schema.target.kind != "labels":
        return f'Target "{schema.target.name}" ({schema.target.kind})'
    names = listed([f'"{name}"' for name in schema.target.columns])
    return f"Targets {names}, each yes or no"


def _missing(column: ColumnOverview, rows: list[int]) -> str:
    """Write the share that is missing, and a bar for each site."""
    if not column.missing.any():
        return ""
    weights = [share * count for share, count in zip(column.missing, rows, strict=True)]
    overall = sum(weights) / max(sum(rows), 1)
    picture = f" {bars(column.missing.tolist(), 1.0)}" if len(rows) <= MOST_BARS else ""
    return f"{overall:.0%}{picture}"
