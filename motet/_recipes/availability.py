"""Whether a recipe can be run here: its data, and settings that this version has."""

from __future__ import annotations

from pathlib import Path

from motet._recipes.recipe import Recipe
from motet._recipes.running import training_tables
from motet.config import NamedData, experiment_from_dict
from motet.errors import MotetError, RequestError, one_line


def why_unavailable(recipe: Recipe, is_found: dict[str, bool]) -> str | None:
    """Say in one sentence why a recipe cannot be run here; None if it can.

    Args:
        recipe: The recipe.
        is_found: Whether the files of a dataset are there, by its name.
    """
    if recipe.unavailable is not None:
        return recipe.unavailable
    missing = [name for name in recipe.about.data if not is_found.get(name, False)]
    if missing:
        return f"the files of {' and '.join(missing)} were not found; see `motet data`."
    return _why_unreadable(recipe)


def data_of(recipe: Recipe, scale: str) -> tuple[str, ...]:
    """Read every config of a scale, and name the data sets that its trainings need.

    Raises:
        RequestError: A config is wrong; the message names its training.
    """
    data = None if recipe.prepare is None else Path("prepared.csv")
    names: dict[str, None] = {}
    for training in recipe.trained(scale):
        tables = training_tables(recipe, scale, training, 0, data)
        try:
            chosen = experiment_from_dict(tables).data
        except MotetError as reason:
            raise RequestError(
                f'the training "{training}" of the recipe "{recipe.name}" is wrong: {reason}'
            ) from None
        names |= {chosen.name: None} if isinstance(chosen, NamedData) else {}
    return tuple(names) if recipe.prepare is None else recipe.about.data


def _why_unreadable(recipe: Recipe) -> str | None:
    """Read every config of the recipe, without loading data."""
    data = None if recipe.prepare is None else Path("prepared.csv")
    try:
        for scale in recipe.scales:
            for training in recipe.trained(scale):
                experiment_from_dict(training_tables(recipe, scale, training, 0, data))
    except MotetError as reason:
        return f"this version of Motet lacks a setting: {one_line(reason).rstrip('.')}."
    return None
