"""The columns and sites of a table as an HTML page without scripts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from motet._cli.terminal import say
from motet.data import Federation
from motet.data._remarks import remarks
from motet.data._tables.overview import overview
from motet.errors import RequestError

MOST_SITES = 200


def write_table_page(federation: Federation, path: Path) -> None:
    """Write what is used of a table, and how its sites differ."""
    if federation.schema is None:
        raise RequestError(
            f'"{federation.name}" is not a table; --page shows the columns of one (--table FILE).'
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(table_page(federation), encoding="utf-8")
    say(f"wrote {path}")


def table_page(federation: Federation) -> str:
    """Return the page."""
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    loader = PackageLoader("motet._cli")
    pages = Environment(
        loader=loader,
        undefined=StrictUndefined,
        autoescape=select_autoescape(default=True, default_for_string=True),
    )
    return pages.get_template("table.html.jinja").render(_values(federation))


def _values(federation: Federation) -> dict[str, Any]:
    schema, aggregates = federation.schema, federation.aggregates
    assert schema is not None
    assert aggregates is not None
    found = overview(schema, aggregates)
    sizes = {split: federation.sizes(split) for split in ("train", "val", "test")}
    order = sorted(range(len(found.sites)), key=lambda place: -found.rows[place])[:MOST_SITES]
    shares = None
    if federation.classes is not None:
        counts = federation.histogram()
        shares = counts / counts.sum(axis=1, keepdims=True).clip(1)
    places = {client: place for place, client in enumerate(federation.clients)}
    return {
        "name": federation.name,
        "schema": schema,
        "columns": found.columns,
        "sites": found.sites,
        "order": order,
        "total": len(found.sites),
        "sizes": sizes,
        "shares": shares,
        "places": places,
        "labels": schema.target.labels,
        "remarks": remarks(federation),
        "format": federation.recipe.get("source", {}).get("format", ""),
        "heterogeneity": federation.heterogeneity().summary(),
    }
