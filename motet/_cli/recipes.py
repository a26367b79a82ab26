"""`motet recipes`: the published tables that can be run again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from motet._cli import options

if TYPE_CHECKING:  # imports torch, which help does not need
    from motet._recipes.recipe import Recipe


def command(
    name: Annotated[
        str | None, typer.Argument(help="Show one recipe with its cells.", show_default=False)
    ] = None,
    *,
    _seed: options.UnusedSeed = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """List the recipes of published tables: paper, data, and what each scale costs."""
    from motet._cli.terminal import show, write_json
    from motet._recipes.shelf import find_recipe, recipe_names

    found = [find_recipe(each) for each in ([name] if name else recipe_names())]
    if as_json:
        cards = [_as_dict(each) for each in found]
        write_json(cards[0] if name else cards)
    elif quiet:
        show("\n".join(each.name for each in found))
    elif name:
        _show_one(found[0])
    else:
        _show_all(found)


def why_not(recipe: Recipe) -> str | None:
    """Say why a recipe cannot be run here; None if it can."""
    from motet._cli.data import is_found
    from motet._recipes.availability import why_unavailable

    return why_unavailable(recipe, {name: is_found(name) for name in recipe.about.data})


def _show_all(recipes: list[Recipe]) -> None:
    from rich.table import Table
    from rich.text import Text

    from motet._cli.terminal import console, show

    drawn = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", width=80)
    drawn.add_column("recipe", no_wrap=True)
    drawn.add_column("table, data and cost", ratio=1)
    for each in recipes:
        reason = why_not(each)
        costs = "; ".join(f"{name}: {scale.cost}" for name, scale in each.scales.items())
        lines = [each.about.title, f"{', '.join(each.about.data) or 'no data at hand'}. {costs}"]
        text = Text("\n".join(lines))
        if reason is not None:
            text.append(f"\nnot available: {reason}", style="yellow")
        drawn.add_row(each.name, text)
    console().print(drawn)
    show("\n`motet reproduce NAME --scale hour` runs one; `motet recipes NAME` shows its cells.")


def _show_one(recipe: Recipe) -> None:
    from motet._cli.terminal import console, show
    from motet._recipes.writing import about_scale

    about, reason = recipe.about, why_not(recipe)
    console().print(about.title, style="bold")
    show(f"{about.paper}\n{about.table}. Published numbers: {about.source}\n")
    if reason is not None:
        show(f"Not available: {reason}\n")
    for cell in recipe.cells:
        spread = "" if cell.spread is None else f" ± {cell.spread:g}"
        number = "no number" if cell.published is None else f"{cell.published:g}{spread}"
        show(f"  {cell.name}: {number}")
    for claim in recipe.claims:
        show(f"  claim: {claim.text}")
    show(f"\nRule: margin {recipe.rule.margin:g}, intervals of {recipe.rule.confidence:.0%}.")
    for name, scale in recipe.scales.items():
        show(f"Scale {about_scale(recipe, name)}; {scale.cost}; hash {recipe.hash(name)}")


def _as_dict(recipe: Recipe) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "name": recipe.name,
        **asdict(recipe.about),
        "not_available": why_not(recipe),
        "rule": asdict(recipe.rule),
        "cells": [asdict(cell) for cell in recipe.cells],
        "claims": [asdict(claim) for claim in recipe.claims],
        "scales": {
            name: {**asdict(scale), "hash": recipe.hash(name)}
            for name, scale in recipe.scales.items()
        },
    }
