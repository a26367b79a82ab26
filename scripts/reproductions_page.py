"""Write docs/reproductions.md from the recipes and the results in benchmarks/reproductions.

Usage: python scripts/reproductions_page.py
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from motet._recipes.recipe import Recipe
from motet._recipes.records import StoredResults, read_results
from motet._recipes.shelf import find_recipe, recipe_names
from motet._recipes.writing import HEADER, JudgedRecipe, about_scale, counted

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reproductions.md"
RESULTS = ROOT / "benchmarks" / "reproductions"
HEAD = """\
# Reproductions

Published tables and figures, run again with Motet. `motet recipes` lists the recipes, and
`motet reproduce NAME --scale SCALE` runs one; [the guide](guides/reproduce.md) explains recipes,
scales and verdicts. `scripts/reproductions_page.py` writes this page from the results in
`benchmarks/reproductions`, each with the hash of the recipe that it was run with.

Numbers are means ± standard deviations over seeds; accuracies are in per cent. "difference" is ours
minus the published number with its 95% interval; for directions and claims it is a difference
between our own cells. Seconds are those of training on two cores that were shared with other work.

- **reproduced**: the setting is the published one, and the interval lies within the margin.
- **refuted**: the setting is the published one, and the interval lies outside of the margin.
- **not distinguishable**: the setting is the published one, and the interval reaches across the
  edge of the margin.
- **direction only**: the setting is smaller. The cell lies on the same side of its reference as
  published, on the opposite side, or that is unclear.

"""


def page() -> str:
    """Return the whole page."""
    done = [JudgedRecipe(recipe=find_recipe(s.recipe), results=s) for s in stored()]
    parts = [HEAD, *_summary(done)]
    papers = dict.fromkeys(find_recipe(name).about.paper for name in recipe_names())
    for paper in papers:
        parts += [f"## {paper}\n\n", *_paper(paper, done)]
    parts += ["## What we learned\n\n", *_lessons(done)]
    return "".join(parts).rstrip() + "\n"


def stored() -> list[StoredResults]:
    """Read all results that are kept."""
    return [read_results(path) for path in sorted(RESULTS.glob("*.jsonl"))]


def _summary(done: list[JudgedRecipe]) -> Iterator[str]:
    total: Counter[str] = Counter()
    for judged in done:
        total.update(counted(judged))
    words = ", ".join(f"{number} {word}" for word, number in sorted(total.items()))
    yield f"In all, {sum(total.values())} verdicts about published cells and claims: {words}. "
    yield "A recipe that was run at two scales has two tables, and its cells count twice.\n\n"


def _paper(paper: str, done: list[JudgedRecipe]) -> Iterator[str]:
    left = []
    for recipe in (find_recipe(name) for name in recipe_names()):
        if recipe.about.paper != paper:
            continue
        found = [judged for judged in done if judged.recipe.name == recipe.name]
        if found:
            yield from _heading(recipe)
        for judged in found:  # one per scale
            yield from _table(judged)
        if not found:
            left.append(recipe)
    for recipe in left:
        yield f"`{recipe.name}` ({recipe.about.title}): {_why_left(recipe)}\n\n"


def _why_left(recipe: Recipe) -> str:
    return recipe.unavailable or "the recipe is there, and no result of it is kept yet."


def _heading(recipe: Recipe) -> Iterator[str]:
    yield f"### {recipe.about.title}\n\n"
    table = recipe.about.table
    yield f"{table[0].upper()}{table[1:]}; published numbers: {recipe.about.source}.\n\n"


def _table(judged: JudgedRecipe) -> Iterator[str]:
    recipe, results = judged.recipe, judged.results
    yield f"Scale {about_scale(recipe, results.scale)}. Margin {recipe.rule.margin:g}.\n"
    yield f"`motet reproduce {recipe.name} --scale {results.scale}`: {len(results.runs)} runs, "
    yield f"{judged.seconds:.0f} s of training. Recipe {results.hash}.\n\n"
    yield f"| {' | '.join(HEADER)} |\n|{'---|' * len(HEADER)}\n"
    for row in judged.rows():
        yield f"| {' | '.join(row)} |\n"
    yield f"\n{judged.left_out()}\n\n" if judged.left_out() else "\n"


def _lessons(done: list[JudgedRecipe]) -> Iterator[str]:
    for about in dict.fromkeys(judged.recipe.about for judged in done):  # once for all scales
        if about.learned:
            yield f"- **{about.title}.** {about.learned}\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
