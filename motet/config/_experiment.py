"""One experiment: every setting that affects the results of a run."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from motet._engine.federation import Run, start
from motet._engine.stores.memory import Store
from motet.config._methods import method_to_dict
from motet.config._run_section import RunChoice
from motet.config._sections import DataChoice, ModelChoice, NamedData
from motet.config._values import to_plain
from motet.data import Federation
from motet.errors import under
from motet.method import AnyMethod
from motet.task import Task

PLANNED = ("chunk_size", "mode", "traced", "channels_last")  # what a plan changes the last bits by


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A method, data, a model and a run: what a config file says.

    Attributes:
        method: The method.
        data: Where the data come from, and how they are divided.
        model: The network and its loss.
        run: Rounds, cohort, backend and evaluation.

    Example:
        >>> import motet
        >>> tables = {"method": {"name": "fedavg"}, "run": {"rounds": 1}}
        >>> experiment = motet.config.experiment_from_dict(tables)
        >>> data = experiment.federation()
        >>> task = experiment.task(data)
        >>> motet.run(experiment.method, task, data, **experiment.settings()).rounds_done
        1
    """

    method: AnyMethod
    data: DataChoice = field(default_factory=NamedData)
    model: ModelChoice = field(default_factory=ModelChoice)
    run: RunChoice = field(default_factory=RunChoice)

    def federation(self) -> Federation:
        """Load the data."""
        return self.data.federation()

    def task(self, federation: Federation) -> Task:
        """Make the network and its loss.

        Args:
            federation: The data.

        Returns:
            The task that fits these data.
        """
        return self.model.resolved(federation, self.data).task(federation)

    def settings(self) -> dict[str, Any]:
        """Return the keyword arguments for `motet.run`."""
        return self.run.settings() | self.model.settings()

    def resolved(self, federation: Federation) -> Experiment:
        """Write out every default, so that the config alone repeats the experiment.

        Args:
            federation: The data.

        Returns:
            The same experiment without a default.
        """
        return replace(
            self,
            data=self.data.resolved(federation),
            model=self.model.resolved(federation, self.data),
            run=self.run.resolved(self.method),
        )

    def planned(self, run: Run) -> Experiment:
        """Write out the plan of a run and the hash of its frozen weights, to repeat it exactly.

        Args:
            run: The run that was started.

        Returns:
            The same experiment with the plan of the run.
        """
        model = replace(self.model, frozen=run.setting.task.frozen_hash or None)
        plan = run.backend.plan
        chosen = {} if plan is None else {name: getattr(plan, name) for name in PLANNED}
        return replace(self, model=model, run=replace(self.run, **chosen))

    def start(self, federation: Federation, store: Store | None = None) -> Run:
        """Check everything that can be checked before round 1, and make the run.

        Args:
            federation: The data.
            store: Where private states live; None: in memory.

        Returns:
            A run without rounds so far.
        """
        settings = {**self.settings(), "store": store}
        task = self.task(federation)
        with under("run"):
            return start(self.method, task, federation, **settings)

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
    bins = {"times": list(model.times)} if model.times is not None else {}
    names = ("init", "rename", "init_sha256", "base", "frozen")
    origin = {name: getattr(model, name) for name in names if getattr(model, name)}
    options = to_plain(model.options, "model")
    return {"name": model.name, "loss": model.loss, **bins, **origin, **options}
