"""What the server and every site must agree on before the first round."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from motet._core.keys import Key
from motet._engine.preflight import check_fits
from motet._engine.run_spec import RunSpec
from motet._engine.scoring import about_task
from motet.config import Experiment, RunChoice, experiment_from_dict, method_to_dict
from motet.config._values import read_fields
from motet.data._federation import Federation
from motet.deploy._runtime.data_schema import EmptyFederation, blank, empty_federation
from motet.deploy._runtime.parcels import Scalar
from motet.deploy._runtime.pinning import hash_of
from motet.deploy._runtime.sitedata import Everywhere, SiteData, Sites
from motet.errors import CapabilityError, RequestError, StateError
from motet.method import AnyMethod, Method
from motet.metrics._registry import resolved
from motet.privacy._ledger import is_private
from motet.task import Task


@dataclass(frozen=True, kw_only=True)
class Agreement:
    r"""An experiment that runs in many places.

    Attributes:
        experiment: Its name; sites keep their private state under it.
        method: The method.
        task: Makes the network and its loss for data of the agreed form.
        sites: What the data look like, and how a site reads its own.
        run: Rounds, cohort, seed and evaluation.
        tables: All of it as the tables of a config; their hash stands for the agreement.
        about: The same as read from the config; None if it was made in Python.

    Example:
        >>> config = '[method]\nname = "fedper"\n[data]\nshape = [4]\nclasses = 2\n'
        >>> agreement = Agreement.from_text("heart", config)
        >>> agreement.method.name, len(agreement.agreed)
        ('fedper', 64)
    """

    experiment: str
    method: AnyMethod
    task: Callable[[Federation], Task]
    sites: Sites
    run: RunChoice
    tables: Mapping[str, Any] = field(default_factory=dict)
    about: Experiment | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*", self.experiment):
            raise RequestError(
                "the name of an experiment is made of letters, digits, '-', '_' and '.'; "
                f'got "{self.experiment}".'
            )
        if type(self.method).prepare is not Method.prepare:
            raise CapabilityError(
                f"{self.method.name} moves examples between clients before it trains, and here "
                "they never leave their sites; choose another method."
            )
        if is_private(self.method):
            raise CapabilityError(
                "the noise of a private run comes from its seed, which the server and every site "
                "know, so it would protect no one here; choose an ordinary optimizer= and "
                "reduce=."
            )

    @classmethod
    def from_run_config(cls, run_config: Mapping[str, Scalar]) -> Agreement:
        """Read the agreement from the entries `experiment` and `config` (TOML text).

        Args:
            run_config: Settings of the Flower run.
        """
        for key in ("experiment", "config"):
            if not isinstance(run_config.get(key), str) or not run_config[key]:
                raise RequestError(
                    f'the run config needs "{key}" as text; got {run_config.get(key)!r}.'
                )
        return cls.from_text(str(run_config["experiment"]), str(run_config["config"]))

    @classmethod
    @lru_cache(maxsize=4)  # a simulation asks with every message, and data are loaded with it
    def from_text(cls, experiment: str, text: str) -> Agreement:
        """Read the agreement from a config as text."""
        try:
            tables = tomllib.loads(text)
        except tomllib.TOMLDecodeError as reason:
            raise RequestError(f"the experiment's config is not valid TOML: {reason}.") from None
        about, sites = _read(tables)
        return cls(
            experiment=experiment,
            method=about.method,
            task=partial(_task, about),
            sites=sites,
            about=about,
            run=about.run.resolved(about.method),
            tables=tables,
        )

    def with_base(self, path: str) -> Agreement:
        """Take the frozen weights from a file of this site; the agreement stays the same.

        They are compared with the server's by their hash, in every message.

        Args:
            path: A .safetensors file.
        """
        if self.about is None:
            raise StateError(
                "this experiment was not read from a config, so its network has the frozen weights "
                "that it was made with; remove base= from the node config."
            )
        if not Path(path).is_file():  # the path itself stays at the site
            raise StateError(
                "this site has no file of frozen weights where base in its site.toml names one."
            )
        about = replace(self.about, model=replace(self.about.model, base=path, frozen=None))
        return replace(self, about=about, task=partial(_task, about))

    @property
    def agreed(self) -> str:
        """A hash that only the same agreement has."""
        plain = self.tables or {"method": method_to_dict(self.method), "seed": self.run.seed}
        return hash_of(self.experiment, plain)

    def empty_federation(self, clients: tuple[str, ...]) -> EmptyFederation:
        """Return what the server knows about the data of these clients.

        Args:
            clients: Ids of the clients.
        """
        return empty_federation(self.sites.data_schema(), sorted(clients), self.agreed)

    def setting(self, federation: Federation) -> RunSpec:
        """Return method, task and data of a run.

        Args:
            federation: The data of a site, or an empty federation.
        """
        task = self.task(federation).seeing(blank(federation).x)
        key = Key(self.run.seed)
        initial = task.init(key.fold("init"))
        metrics = resolved(
            self.run.metrics,
            about_task(task.criterion, federation.classes, blank(federation).y),
        )
        return RunSpec(
            self.method,
            task,
            federation,
            key,
            self.run.rounds,
            initial,
            metrics=metrics,
            weigh=self.run.weigh,
            serving_steps=self.run.serving_steps,
            uploads=self.run.uploads,
        )

    def setting_at(self, client: str, place: str | None, *, check: bool = True) -> RunSpec:
        """Return one client's method, task and data.

        Args:
            client: Id of the client.
            place: Where its data are; None: as agreed.
            check: Whether to try the data out on the network.
        """
        federation = self.sites.load(client, place)
        setting = self.setting(federation)
        if check:
            check_fits(setting.task, federation)
        return setting


def _task(about: Experiment, data: Federation) -> Task:
    return about.model.resolved(data, about.data).task(data)


def _read(tables: Mapping[str, Any]) -> tuple[Experiment, Sites]:
    data = tables.get("data", {})
    if not (isinstance(data, Mapping) and "shape" in data):
        about = _drawn(experiment_from_dict(tables))
        return about, Everywhere(about.data)
    about = _drawn(experiment_from_dict({n: t for n, t in tables.items() if n != "data"}))
    return about, read_fields(SiteData, {"seed": about.run.seed, **data}, "data")


def _drawn(experiment: Experiment) -> Experiment:
    """Refuse weights in a file, which sites would have to hold, too."""
    if experiment.model.init is not None:
        raise CapabilityError(
            "a deployment draws its first weights from the seed, at every site alike, and does not "
            "read model.init; remove it from [model]."
        )
    return experiment
