"""Comparisons as config files: several methods, one set of data, one model, one kind of run.

[compare]             which methods, how many seeds, by which round they are judged
[compare.budget]      what a run may spend at most
[compare.tune]        a search for hyperparameters
[method]              what all methods share: optimizer, epochs, batch size
[methods.fedper]      what only one of them has
[run] [data] [model]  as for a single run
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from motet.catalog import method_names
from motet.comparing.budget import Budget
from motet.comparing.conditions import Contest
from motet.comparing.references import SHARED_FIELDS, why_unsuited
from motet.comparing.rules import Choice, Rules
from motet.comparing.tuning import Search
from motet.config.experiment import model_to_dict, section_to_dict
from motet.config.files import SECTIONS, data_from_dict, model_from_dict, section_reader
from motet.config.hints import NONE
from motet.config.methods import method_from_dict, method_to_dict
from motet.config.sections import DataChoice, ModelChoice, RunChoice
from motet.config.values import read_fields, to_plain
from motet.data import Federation
from motet.errors import RequestError, nearest
from motet.method import AnyMethod

DEFAULT_METHODS = ("local", "fedavg", "fedavg-ft", "fedper")
SHARED_KEYS = (*SHARED_FIELDS, "lr")


@dataclass(frozen=True, kw_only=True)
class CompareChoice:
    """`[compare]`: what is compared.

    Attributes:
        methods: Labels: a method's name, or the name of a table [methods.LABEL] that says `name`;
            "all" is every method there is.
        seeds: How many runs of each method, or the seeds themselves.
        choose: By which round a run is judged: the last, or the one that validation data prefer.
        budget: What a run may spend at most.
    """

    methods: tuple[str, ...] = DEFAULT_METHODS
    seeds: int | tuple[int, ...] = 1
    choose: Choice = "last"
    budget: Budget = field(default_factory=Budget)


@dataclass(frozen=True, kw_only=True)
class ComparisonPlan:
    """What a config file for `motet compare` says."""

    entries: Mapping[str, AnyMethod]
    seeds: tuple[int, ...]
    data: DataChoice
    model: ModelChoice
    run: RunChoice
    choose: Choice = "last"
    budget: Budget = field(default_factory=Budget)
    tune: Search | None = None

    def federation(self) -> Federation:
        """Load the data."""
        return self.data.federation()

    def resolved(self, federation: Federation) -> ComparisonPlan:
        """Write out every default."""
        return replace(
            self,
            data=self.data.resolved(federation),
            model=self.model.resolved(federation, self.data),
            run=replace(self.run, evaluate_every=self._rules().every),
        )

    def suited(self, federation: Federation) -> tuple[ComparisonPlan, dict[str, str]]:
        """Leave out the methods that cannot run here, or would be another method; say why."""
        task = self.model.resolved(federation, self.data).task(federation)
        reasons = {
            label: reason
            for label, method in self.entries.items()
            if (reason := why_unsuited(method, task, federation))
        }
        kept = {label: m for label, m in self.entries.items() if label not in reasons}
        return replace(self, entries=kept), reasons

    def contest(self, federation: Federation) -> Contest:
        """Check everything that can be checked before the first run."""
        task = self.model.resolved(federation, self.data).task(federation)
        settings = {name: v for name, v in self.run.settings().items() if name != "seed"}
        return Contest.of(
            self.entries,
            task,
            federation,
            seeds=self.seeds,
            evaluate_every=self.run.evaluate_every,
            choose=self.choose,
            budget=self.budget,
            tune=self.tune,
            **settings,
        )

    def after_search(self, contest: Contest) -> ComparisonPlan:
        """Take over what a search chose, so that it need not be made again."""
        return replace(self, entries=contest.entries, tune=None)

    def _rules(self) -> Rules:
        return Rules(rounds=self.run.rounds, evaluate_every=self.run.evaluate_every)

    def to_dict(self) -> dict[str, Any]:
        """Write the plan down as the tables of a config file."""
        return {
            "compare": {
                "methods": list(self.entries),
                "seeds": list(self.seeds),
                "choose": self.choose,
                "budget": asdict(self.budget),
                **({} if self.tune is None else {"tune": _search_to_dict(self.tune)}),
            },
            "run": section_to_dict(self.run, "run"),
            "data": section_to_dict(self.data, "data"),
            "model": model_to_dict(self.model),
            "methods": {label: method_to_dict(method) for label, method in self.entries.items()},
        }


def plan_from_dict(tables: Mapping[str, Any]) -> ComparisonPlan:
    """Make the comparison that the tables of a config describe, or say what is wrong with them."""
    section = section_reader(tables, (*SECTIONS, "compare", "methods"))
    compared = section("compare")
    tune = _search_from_dict(compared.pop("tune", None))
    choice = read_fields(CompareChoice, compared, "compare")
    run = read_fields(RunChoice, section("run"), "run")
    seeds = choice.seeds
    return ComparisonPlan(
        entries=_entries(_named(choice.methods), section("method"), section("methods")),
        seeds=tuple(range(run.seed, run.seed + seeds)) if isinstance(seeds, int) else seeds,
        data=data_from_dict(section("data"), seed=run.seed),
        model=model_from_dict(section("model")),
        run=run,
        choose=choice.choose,
        budget=choice.budget,
        tune=tune,
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
    """Name values by dotted keys, which TOML reads as tables within tables."""
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
                f"[methods.{label}] is not among the methods compared; {nearest(label, labels)}."
            )
    one = common.pop("name", None)  # a config of a single run also says what only its method has
    shared = {key: value for key, value in common.items() if key in SHARED_KEYS}
    special = {key: value for key, value in common.items() if key not in SHARED_KEYS}
    if special and one is None:
        key = next(iter(special))
        raise RequestError(
            f'[method] is for all methods, and not all have "{key}"; {nearest(key, SHARED_KEYS)}. '
            f"What only one has belongs in [methods.NAME], or --set methods.NAME.{key}=..."
        )
    return {
        label: _entry(label, shared | (special if label == one else {}), own.get(label, {}))
        for label in labels
    }


def _entry(label: str, common: dict[str, Any], own: Any) -> AnyMethod:
    where = f"methods.{label}"
    if not isinstance(own, Mapping):
        raise RequestError(f"[{where}] expects a table; got {own!r}.")
    return method_from_dict({"name": label, **common, **own}, where=where)
