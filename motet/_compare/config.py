"""Config files of `motet compare`: several methods with one dataset, one model and one [run].

[compare]             methods, seeds, which round counts
[compare.budget]      limits on what a run may spend
[compare.tune]        hyperparameter search
[method]              settings of all methods: optimizer, epochs, batch size
[methods.fedper]      settings of one method
[run] [data] [model]  as for a single run
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from motet._compare.budget import Budget
from motet._compare.comparison_spec import ComparisonSpec
from motet._compare.references import SHARED_FIELDS, why_unsuited
from motet._compare.rules import Choice
from motet._compare.site_group_files import read_site_groups
from motet._compare.tuning import Search
from motet._core.points import Point
from motet.config._experiment import model_to_dict, section_to_dict
from motet.config._files import (
    SECTIONS,
    data_from_dict,
    model_from_dict,
    run_from_dict,
    section_reader,
)
from motet.config._hints import NONE
from motet.config._methods import method_from_dict, method_to_dict
from motet.config._run_section import RunChoice
from motet.config._sections import DataChoice, ModelChoice
from motet.config._values import read_fields, to_plain
from motet.data import Federation
from motet.errors import RequestError, nearest
from motet.method import AnyMethod
from motet.methods._catalog import method_names

DEFAULT_METHODS = ("local", "fedavg", "fedavg-ft", "fedper")
SHARED_KEYS = (*SHARED_FIELDS, "lr")


@dataclass(frozen=True, kw_only=True)
class CompareChoice:
    """The `[compare]` section.

    Attributes:
        methods: Labels. A label is a method's name or has a table [methods.LABEL] with a `name`;
            "all" stands for every method.
        seeds: Number of seeds, or a list of seeds.
        choose: Which round counts: the last one, or the one with the best validation mean.
        budget: Limits on what a run may spend.
        point: Where in a round clients are scored; None: each method as its authors report it.
        cross_site: Whether each client's final model is scored on each client's test data, too.
        leave_one_out: Whether the best federated method is run again without each client.
        site_groups: The group of each client, or a table file with the columns client and group.
        examples: Whether to keep predictions of single test examples, up to a limit.
    """

    methods: tuple[str, ...] = DEFAULT_METHODS
    seeds: int | tuple[int, ...] = 3
    choose: Choice = "last"
    budget: Budget = field(default_factory=Budget)
    point: Point | None = None
    cross_site: bool = False
    leave_one_out: bool = False
    site_groups: dict[str, str] | str = field(default_factory=dict)
    examples: bool = True


@dataclass(frozen=True, kw_only=True)
class ComparisonPlan:
    """A parsed config file of `motet compare`."""

    entries: Mapping[str, AnyMethod]
    seeds: tuple[int, ...]
    data: DataChoice
    model: ModelChoice
    run: RunChoice
    choose: Choice = "last"
    budget: Budget = field(default_factory=Budget)
    tune: Search | None = None
    point: Point | None = None
    cross_site: bool = False
    leave_one_out: bool = False
    site_groups: Mapping[str, str] = field(default_factory=dict)
    examples: bool = True

    def federation(self) -> Federation:
        """Load the data."""
        return self.data.federation()

    def resolved(self, federation: Federation) -> ComparisonPlan:
        """Return the plan with every default filled in."""
        return replace(
            self,
            data=self.data.resolved(federation),
            model=self.model.resolved(federation, self.data),
        )

    def suited(self, federation: Federation) -> tuple[ComparisonPlan, dict[str, str]]:
        """Return the plan without methods that do not suit this data, and the reason for each."""
        task = self.model.resolved(federation, self.data).task(federation)
        reasons = {
            label: reason
            for label, method in self.entries.items()
            if (reason := why_unsuited(method, task, federation))
        }
        kept = {label: m for label, m in self.entries.items() if label not in reasons}
        return replace(self, entries=kept), reasons

    def spec(self, federation: Federation) -> ComparisonSpec:
        """Return a checked specification, ready to run."""
        task = self.model.resolved(federation, self.data).task(federation)
        all_settings = self.run.settings() | self.model.settings()
        settings = {name: value for name, value in all_settings.items() if name != "seed"}
        return ComparisonSpec.of(
            self.entries,
            task,
            federation,
            seeds=self.seeds,
            evaluate_every=self.run.evaluate_every,
            choose=self.choose,
            budget=self.budget,
            tune=self.tune,
            point=self.point,
            cross_site=self.cross_site,
            site_groups=self.site_groups,
            examples=self.examples,
            **settings,
        )

    def after_search(self, spec: ComparisonSpec) -> ComparisonPlan:
        """Return the plan with the values that a search chose, and without the search."""
        return replace(self, entries=spec.entries, tune=None)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as the tables of a config file."""
        return {
            "compare": {
                "methods": list(self.entries),
                "seeds": list(self.seeds),
                "choose": self.choose,
                "budget": asdict(self.budget),
                "point": self.point,
                "cross_site": self.cross_site,
                "leave_one_out": self.leave_one_out,
                "site_groups": dict(self.site_groups),
                "examples": self.examples,
                **({} if self.tune is None else {"tune": _search_to_dict(self.tune)}),
            },
            "run": section_to_dict(self.run, "run"),
            "data": section_to_dict(self.data, "data"),
            "model": model_to_dict(self.model),
            "methods": {label: method_to_dict(method) for label, method in self.entries.items()},
        }


def plan_from_dict(tables: Mapping[str, Any]) -> ComparisonPlan:
    """Parse the tables of a config file."""
    section = section_reader(tables, (*SECTIONS, "compare", "methods"))
    compared = section("compare")
    tune = _search_from_dict(compared.pop("tune", None))
    choice = read_fields(CompareChoice, compared, "compare")
    run = run_from_dict(section("run"), tables)
    seeds = choice.seeds
    return ComparisonPlan(
        entries=_entries(_named(choice.methods), section("method"), section("methods")),
        seeds=_listed(seeds, run.seed),
        data=data_from_dict(section("data"), seed=run.seed),
        model=model_from_dict(section("model")),
        run=run,
        choose=choice.choose,
        budget=choice.budget,
        tune=tune,
        point=choice.point,
        cross_site=choice.cross_site,
        leave_one_out=choice.leave_one_out,
        site_groups=read_site_groups(choice.site_groups),
        examples=choice.examples,
    )


def _search_from_dict(table: Any) -> Search | None:
    if table in (None, NONE):
        return None
    if not isinstance(table, Mapping):
        raise RequestError(f"[compare.tune] expects a table, such as trials = 6; got {table!r}.")
    known = {key: value for key, value in table.items() if key != "space"}
    search = read_fields(Search, known, "compare.tune")
    space = table.get("space", NONE)
    return search if space == NONE else replace(search, space=dict(_dotted(space)))


def _dotted(space: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    """Flatten nested tables to dotted keys, which TOML parses as tables within tables."""
    if not isinstance(space, Mapping):
        raise RequestError(
            f'[compare.tune.space] expects lists of values by name, such as "optimizer.lr" = '
            f"[0.1, 0.3]; got {space!r}."
        )
    for key, value in space.items():
        if isinstance(value, Mapping):
            yield from _dotted(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _search_to_dict(search: Search) -> dict[str, Any]:
    space = None if search.space is None else to_plain(search.space)
    return {
        **{name: getattr(search, name) for name in ("trials", "kind", "rounds")},
        "space": space,
    }


def _named(labels: tuple[str, ...]) -> tuple[str, ...]:
    return method_names() if labels == ("all",) else labels


def _entries(
    labels: tuple[str, ...], common: dict[str, Any], own: dict[str, Any]
) -> dict[str, AnyMethod]:
    for label in own:
        if label not in labels:
            raise RequestError(
                f"[methods.{label}] is not one of the compared methods; {nearest(label, labels)}."
            )
    one = common.pop("name", None)  # a single run's config also holds settings of its method
    shared = {key: value for key, value in common.items() if key in SHARED_KEYS}
    special = {key: value for key, value in common.items() if key not in SHARED_KEYS}
    if special and one is None:
        key = next(iter(special))
        raise RequestError(
            f'[method] applies to all methods, but not all have "{key}"; '
            f"{nearest(key, SHARED_KEYS)}. Put settings of one method in [methods.NAME], or use "
            f"--set methods.NAME.{key}=..."
        )
    return {
        label: _entry(label, shared | (special if label == one else {}), own.get(label, {}))
        for label in labels
    }


def _entry(label: str, common: dict[str, Any], own: Any) -> AnyMethod:
    where = f"methods.{label}"
    if not isinstance(own, Mapping):
        raise RequestError(f"[{where}] expects a table; got {own!r}.")
    try:
        return method_from_dict({"name": label, **common, **own}, where=where)
    except RequestError as error:
        if error.option == f"{where}.name" and "name" not in own:  # it is a name in the list
            error.option = "compare.methods"
        raise


def _listed(seeds: int | tuple[int, ...], first: int) -> tuple[int, ...]:
    """List a number of seeds, from the first one on; a list stays as it is."""
    least = 1 if isinstance(seeds, int) else 0
    given = seeds if isinstance(seeds, int) else min(seeds, default=least)
    if given < least:
        message = f"compare.seeds must be {least} or more; got {given}."
        raise RequestError(message, option="compare.seeds")
    return tuple(range(first, first + seeds)) if isinstance(seeds, int) else seeds
