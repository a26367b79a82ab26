"""One experiment: everything that decides a run's numbers, and nothing else."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from motet.config.methods import method_to_dict
from motet.config.sections import DataChoice, ModelChoice, NamedData, RunChoice
from motet.config.values import to_plain
from motet.data import Federation
from motet.federation import Run, start
from motet.method import AnyMethod
from motet.store import Store
from motet.task import Task

PLANNED = ("chunk_size", "mode", "traced", "channels_last")  # what a plan changes the last bits by


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A method, data, a model and a run: what a config file says.

    The same run in Python:

        experiment = motet.config.load_experiment("experiment.toml")
        data = experiment.federation()
        task = experiment.task(data)
        run = motet.run(experiment.method, task, data, **experiment.settings())
    """

    method: AnyMethod
    data: DataChoice = field(default_factory=NamedData)
    model: ModelChoice = field(default_factory=ModelChoice)
    run: RunChoice = field(default_factory=RunChoice)

    def federation(self) -> Federation:
        """Load the data."""
        return self.data.federation()

    def task(self, federation: Federation) -> Task:
        """Make the network and its loss."""
        return self.model.resolved(federation, self.data).task(federation)

    def settings(self) -> dict[str, Any]:
        """Return the keyword arguments for `motet.run`."""
        return self.run.settings()

    def resolved(self, federation: Federation) -> Experiment:
        """Write out every default, so that the experiment can be repeated from its config alone."""
        return replace(
            self,
            data=self.data.resolved(federation),
            model=self.model.resolved(federation, self.data),
            run=self.run.resolved(),
        )

    def planned(self, run: Run) -> Experiment:
        """Write out how a run is carried out, so that it is so again: to the last bit."""
        plan = getattr(run.backend, "plan", None)
        if plan is None:
            return self
        chosen = {name: getattr(plan, name) for name in PLANNED}
        return replace(self, run=replace(self.run, **chosen))

    def start(self, federation: Federation, store: Store | None = None) -> Run:
        """Check everything that can be checked before round 1."""
        settings = {**self.settings(), "store": store}
        return start(self.method, self.task(federation), federation, **settings)

    def to_dict(self) -> dict[str, Any]:
        """Write the experiment down as the tables of a config file."""
        return {
            "run": section_to_dict(self.run, "run"),
            "method": method_to_dict(self.method),
            "data": section_to_dict(self.data, "data"),
            "model": model_to_dict(self.model),
        }


def section_to_dict(section: DataChoice | RunChoice, where: str) -> dict[str, Any]:
    """Write a section down, every key of it."""
    values = {field.name: getattr(section, field.name) for field in fields(section)}
    if isinstance(section, RunChoice):
        values["faults"] = asdict(section.faults)
    written: dict[str, Any] = to_plain(values, where)
    return written


def model_to_dict(model: ModelChoice) -> dict[str, Any]:
    """Write `[model]` down; the network's options stand beside its name."""
    return {"name": model.name, "loss": model.loss, **to_plain(model.options, "model")}
