"""A recipe: the settings of a published table or figure, its cells, and how ours are judged.

title, paper, table, source   what is reproduced, and where the published numbers were read
data                          names of the datasets that are needed
prepare                       a table to be made of them first (`motet._recipes.preparing`)
unavailable                   why it cannot be run here, in one sentence
[rule]                        margin and confidence of every verdict
[settings]                    config tables of all trainings
[trainings.NAME]              config tables of one training
[[cells]]                     a published number, or a number that a claim is about
[[claims]]                    a published statement about cells
[scales.NAME]                 seeds and changes of the settings, to fit an hour, a night or more
"""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any, Literal

from motet.config._values import read_fields
from motet.errors import RequestError, nearest

Statistic = Literal["mean", "weighted_mean", "decile", "worst", "std"]
Unit = Literal["seeds", "clients"]
Where = Literal["after_broadcast", "after_local", "after_adapt"]
Tables = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """How a cell is judged, fixed before anything is run.

    Attributes:
        margin: Differences up to this size do not matter, in the units of the metric.
        confidence: Of every interval.
        published_runs: Runs behind a published mean with a spread.
    """

    margin: float
    confidence: float = 0.95
    published_runs: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.margin < math.inf:
            raise RequestError(f"rule.margin must be 0 or more; got {self.margin}.")
        if not 0 < self.confidence < 1:
            raise RequestError(
                f"rule.confidence must be between 0 and 1, such as 0.95; got {self.confidence}."
            )
        if self.published_runs < 1:
            raise RequestError(f"rule.published_runs must be 1 or more; got {self.published_runs}.")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One number of the table.

    Attributes:
        name: Its row and column, unique in the recipe.
        training: The training that it is read from.
        point: Where in the last round clients are scored; None: as the method's authors report it.
        statistic: What is taken over clients.
        published: The paper's number; None where it prints a curve, or none that is at hand.
        spread: The paper's standard deviation over runs.
        reference: The cell that this one is above, below or level with, where only that is judged.
    """

    name: str
    training: str
    point: Where | None = None
    statistic: Statistic = "mean"
    published: float | None = None
    spread: float | None = None
    reference: str | None = None


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A statement of the paper: a weighted sum of cells that it says is above 0."""

    text: str
    contrast: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How much of the paper's work is done.

    Attributes:
        cost: What it takes, on two cores.
        seeds: Runs of every training.
        first_seed: The first of the seeds.
        same_setting: Whether all settings are the paper's, so that numbers may be compared. If
            not, only directions are.
        unit: What intervals of directions are over: seeds (three or more), or clients.
        trainings: Those that are run; None: all.
        differs: How the setting differs from the paper's.
    """

    cost: str
    seeds: int = 3
    first_seed: int = 0
    same_setting: bool = False
    unit: Unit = "seeds"
    trainings: tuple[str, ...] | None = None
    differs: str = ""

    def __post_init__(self) -> None:
        if self.seeds < 1 or self.first_seed < 0:
            raise RequestError(
                "a scale of a recipe has one seed or more, from 0 on; got "
                f"seeds={self.seeds}, first_seed={self.first_seed}."
            )


@dataclass(frozen=True, kw_only=True)
class About:
    """What a recipe says about itself in words; nothing here changes a number."""

    title: str
    paper: str
    table: str
    source: str
    data: tuple[str, ...]
    learned: str = ""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A published table or figure, ready to be run."""

    name: str
    about: About
    rule: Rule
    cells: tuple[Cell, ...]
    claims: tuple[Claim, ...]
    scales: Mapping[str, Scale]
    prepare: str | None = None
    unavailable: str | None = None
    settings: Tables = field(default_factory=dict)
    trainings: Mapping[str, Tables] = field(default_factory=dict)
    changes: Mapping[str, Tables] = field(default_factory=dict)  # by scale

    def scale(self, name: str) -> Scale:
        """Return one scale, or say which there are."""
        if not self.scales:
            raise RequestError(
                f'the recipe "{self.name}" has no scale; write one: [scales.{name}] with cost = '
                '"10 minutes" and seeds = 3.'
            )
        if name not in self.scales:
            raise RequestError(
                f'the recipe "{self.name}" has no scale "{name}"; {nearest(name, self.scales)}.'
            )
        return self.scales[name]

    def trained(self, scale: str) -> tuple[str, ...]:
        """List the trainings of a scale, in the order of the recipe."""
        chosen = self.scale(scale).trainings
        return tuple(name for name in self.trainings if chosen is None or name in chosen)

    def seeds(self, scale: str) -> tuple[int, ...]:
        """List the seeds of a scale."""
        chosen = self.scale(scale)
        return tuple(range(chosen.first_seed, chosen.first_seed + chosen.seeds))

    def cells_at(self, scale: str) -> tuple[Cell, ...]:
        """List the cells whose training is part of a scale."""
        trained = self.trained(scale)
        return tuple(cell for cell in self.cells if cell.training in trained)

    def claims_at(self, scale: str) -> tuple[Claim, ...]:
        """List the claims whose cells are all part of a scale."""
        known = {cell.name for cell in self.cells_at(scale)}
        return tuple(claim for claim in self.claims if set(claim.contrast) <= known)

    def tables(self, training: str, scale: str) -> Tables:
        """Return the config tables of a training: the most special setting counts."""
        changes = self.changes.get(scale, {})
        own = changes.get("training", {}).get(training, {})
        layers = (self.settings, self.trainings[training], changes.get("settings", {}), own)
        found: Tables = {}
        for layer in layers:
            found = merged(found, layer)
        return found

    def hash(self, scale: str) -> str:
        """Return what changes whenever a setting, a seed, a cell or the rule changes."""
        chosen = self.scale(scale)
        content = {
            "rule": asdict(self.rule),
            "cells": [asdict(cell) for cell in self.cells_at(scale)],
            "claims": [asdict(claim) for claim in self.claims_at(scale)],
            "seeds": self.seeds(scale),
            "unit": chosen.unit,
            "same_setting": chosen.same_setting,
            "prepare": self.prepare,
            "tables": {name: self.tables(name, scale) for name in self.trained(scale)},
        }
        written = json.dumps(content, sort_keys=True)
        return hashlib.sha256(written.encode()).hexdigest()[:16]


def recipe_from_text(name: str, text: str) -> Recipe:
    """Parse a recipe, or say what is wrong with it."""
    try:
        tables = tomllib.loads(text)
    except ValueError as reason:
        raise RequestError(f'the recipe "{name}" is not valid TOML: {reason}.') from None
    about = {key: tables.pop(key) for key in About.__dataclass_fields__ if key in tables}
    scales, changes = _scales(tables.pop("scales", {}))
    rule, cells, claims = (tables.pop(key, {}) for key in ("rule", "cells", "claims"))
    known = ("prepare", "unavailable", "settings", "trainings")
    for key in tables:
        if key not in known:
            raise RequestError(f'the recipe "{name}" has no key "{key}"; {nearest(key, known)}.')
    _require_keys(name, about, About)
    recipe = Recipe(
        name=name,
        about=read_fields(About, about, name),
        rule=read_fields(Rule, rule, "rule"),
        cells=tuple(read_fields(Cell, cell, "cells") for cell in cells),
        claims=tuple(read_fields(Claim, claim, "claims") for claim in claims),
        scales=scales,
        changes=changes,
        **tables,
    )
    _check(recipe)
    return recipe


def _require_keys(name: str, about: Mapping[str, Any], kind: type[About]) -> None:
    needed = [f.name for f in fields(kind) if f.default is MISSING and f.name not in about]
    if needed:
        raise RequestError(f'the recipe "{name}" needs {", ".join(needed)}; write it at its top.')


def _scales(tables: Mapping[str, Any]) -> tuple[dict[str, Scale], dict[str, Tables]]:
    own = ("settings", "training")
    changes = {name: {key: t[key] for key in own if key in t} for name, t in tables.items()}
    plain = {name: {k: v for k, v in t.items() if k not in own} for name, t in tables.items()}
    scales = {name: read_fields(Scale, t, f"scales.{name}") for name, t in plain.items()}
    return scales, changes


def _check(recipe: Recipe) -> None:
    names = [cell.name for cell in recipe.cells]
    if len(set(names)) < len(names):
        raise RequestError(f'two cells of the recipe "{recipe.name}" have the same name.')
    for cell in recipe.cells:
        _require(cell.training, recipe.trainings, f'the cell "{cell.name}" is of training')
        if cell.reference is not None:
            _require(cell.reference, names, f'the reference of "{cell.name}" is')
    for claim in recipe.claims:
        for name in claim.contrast:
            _require(name, names, f'the claim "{claim.text}" is about')
    for place, scale in recipe.scales.items():
        changed = recipe.changes.get(place, {}).get("training", {})
        for name in (*(scale.trainings or ()), *changed):
            _require(name, recipe.trainings, f'the scale "{place}" has training')


def _require(name: str, known: Any, what: str) -> None:
    if name not in known:
        raise RequestError(
            f'{what} "{name}", which the recipe does not have; {nearest(name, known)}.'
        )


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> Tables:
    """Lay tables over others; tables within tables are merged, too.

    A table that names another model, method, partition or optimizer starts afresh.

    >>> merged({"run": {"rounds": 5, "seed": 1}}, {"run": {"rounds": 2}})
    {'run': {'rounds': 2, 'seed': 1}}
    >>> merged({"model": {"name": "resnet-18", "norm": "group"}}, {"model": {"name": "mlp"}})
    {'model': {'name': 'mlp'}}
    """
    found = dict(below)
    for key, value in above.items():
        old = found.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping) and not _renamed(old, value):
            found[key] = merged(old, value)
        else:
            found[key] = value
    return found


def _renamed(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return any(tag in old and tag in new and old[tag] != new[tag] for tag in ("name", "kind"))
