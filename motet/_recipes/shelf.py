"""The recipes that come with Motet, and recipes in files."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from motet._recipes.recipe import Recipe, recipe_from_text
from motet.errors import RequestError, nearest

ENDING = ".toml"


def recipe_names() -> tuple[str, ...]:
    """List the recipes that come with Motet."""
    found = (entry.name for entry in (files("motet") / "recipes").iterdir())
    return tuple(sorted(name.removesuffix(ENDING) for name in found if name.endswith(ENDING)))


def find_recipe(name: str) -> Recipe:
    """Read a recipe by name, or from a file whose path ends in .toml."""
    if name.endswith(ENDING):
        path = Path(name)
        try:
            return recipe_from_text(path.stem, path.read_text(encoding="utf-8"))
        except OSError as reason:
            raise RequestError(f"{path} cannot be read: {reason.strerror}.") from None
    if name not in recipe_names():
        raise RequestError(
            f'no recipe is called "{name}"; {nearest(name, recipe_names())}. `motet recipes` '
            "lists them."
        )
    text = (files("motet") / "recipes" / f"{name}{ENDING}").read_text(encoding="utf-8")
    return recipe_from_text(name, text)
