"""`motet reproduce`: run a published table, and put our numbers beside it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from motet._cli import options

if TYPE_CHECKING:  # imports torch, which help does not need
    from motet._recipes.recipe import Recipe
    from motet._recipes.records import Records, StoredResults
    from motet._recipes.writing import JudgedRecipe


def command(
    name: Annotated[str, typer.Argument(help="A recipe by name, or a file that ends in .toml.")],
    *,
    scale: Annotated[
        str,
        typer.Option(
            help="How much of the table to run: hour, night or full.", rich_help_panel=options.RUN
        ),
    ] = "hour",
    out: Annotated[
        Path | None,
        typer.Option(
            help="Directory for the results; the same one continues an interrupted command; "
            "default: reproductions/NAME-SCALE.",
            metavar="DIR",
            show_default=False,
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option(
            help="Compare with stored results: every number must be identical.",
            metavar="FILE",
            show_default=False,
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    _seed: options.UnusedSeed = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Run a recipe and compare every cell with the published one, by the rule of the recipe.

    motet reproduce flamby-heart --scale hour
    """
    from motet._recipes.records import other_recipe, read_results
    from motet._recipes.running import open_records, require_available
    from motet._recipes.shelf import find_recipe
    from motet._recipes.writing import JudgedRecipe
    from motet.errors import StateError

    recipe = find_recipe(name)
    require_available(recipe)
    recipe.scale(scale)
    stored = None if check is None else read_results(check)
    if stored is not None and (reason := other_recipe(stored, recipe, scale)) is not None:
        raise StateError(f"{check} {reason}, so there is nothing to compare it with.")
    _require_data(recipe, scale)
    folder = out or Path("reproductions") / f"{recipe.name}-{scale}"
    with open_records(recipe, scale, folder) as records:
        _run(recipe, scale, records, quiet=quiet)
        found = JudgedRecipe(recipe=recipe, results=read_results(records.path))
    _show(found, as_json=as_json)
    if not (quiet or as_json):
        from motet._cli.terminal import say

        say(f"\nKept in {folder}")
    if stored is not None:
        _check(found.results, stored, check)


def _require_data(recipe: Recipe, scale: str) -> None:
    """Refuse wrong configs and missing files before the first of many runs."""
    from motet._cli.data import is_found
    from motet._recipes.availability import data_of
    from motet.data import dataset

    for name in data_of(recipe, scale):
        if not is_found(name):
            about = dataset(name)
            (about.load if about.table is None else about.table)()  # it says what is missing


def _run(recipe: Recipe, scale: str, records: Records, *, quiet: bool) -> None:
    from motet._cli.failures import RunStoppedError
    from motet._cli.interrupt import Interrupt
    from motet._cli.progress import progress
    from motet._cli.stopping import StoppedError
    from motet._recipes.running import Stopped, run_left, runs_left

    left = len(runs_left(recipe, scale, records))
    total = left + len(records.runs)
    promise = "Stopping after this round, and saving it."
    with (
        Interrupt(promise) as interrupt,
        progress("run", total, done=len(records.runs), quiet=quiet) as shown,
    ):
        try:
            for run in run_left(recipe, scale, records, lambda: interrupt.asked):
                value = run.at(None if run.reported in run.scores else next(iter(run.scores)))
                note = (
                    f"{run.training}, seed {run.seed}: {value.metric} {value.statistic('mean'):.4f}"
                )
                shown.step(f"{note} ({run.seconds:.0f} s)", worth_a_line=True)
        except Stopped:
            stop = StoppedError(interrupt.asked)
            again = (
                f"stopped; the same command continues after {len(records.runs)} of {total} runs."
            )
            raise RunStoppedError(again, stop) from None


def _show(found: JudgedRecipe, *, as_json: bool) -> None:
    from rich.table import Table
    from rich.text import Text

    from motet._cli.terminal import console, show, write_json
    from motet._recipes.writing import HEADER, about_scale, counted

    if as_json:
        write_json(as_dict(found))
        return
    console().print(Text(found.recipe.about.title, style="bold"))
    show(about_scale(found.recipe, found.results.scale) + "\n")
    drawn = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", width=80)
    for head in HEADER:
        drawn.add_column(head, ratio=3 if head in ("cell", "verdict", "difference") else 2)
    for row in found.rows():
        drawn.add_row(*(Text(cell) for cell in row))
    console().print(drawn)
    words = ", ".join(f"{number} {word}" for word, number in counted(found).items())
    show(f"\n{words or 'nothing to compare'}; {found.seconds:.0f} s of training.")
    if found.left_out():
        show(found.left_out())


def as_dict(found: JudgedRecipe) -> dict[str, Any]:
    """Return the judged results as values for JSON."""
    from motet._recipes.writing import HEADER, counted

    return {
        "recipe": found.recipe.name,
        "scale": found.results.scale,
        "hash": found.results.hash,
        "rows": [dict(zip(HEADER, row, strict=True)) for row in found.rows()],
        "verdicts": counted(found),
        "seconds": found.seconds,
    }


def _check(ours: StoredResults, stored: StoredResults, path: Path | None) -> None:
    from motet._cli.failures import RunFailedError
    from motet._cli.terminal import say
    from motet._recipes.records import differences

    found = differences(ours, stored)
    if found:
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        raise RunFailedError(
            f"the results differ from those in {path}: {'; '.join(found[:3])}{more}."
        )
    say(f"All {len(ours.runs)} runs have the same numbers as {path}.")
