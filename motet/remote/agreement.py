"""What the server and every site must agree on before the first round."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from motet.checks import check_fits
from motet.config import Experiment, RunChoice, experiment_from_dict, method_to_dict
from motet.config.values import read_fields
from motet.data.federation import Federation
from motet.errors import CapabilityError, RequestError
from motet.keys import Key
from motet.method import AnyMethod, Method
from motet.privacy.ledger import is_private
from motet.records import json_text
from motet.remote.outline import Outline, blank, outline
from motet.remote.parcels import Scalar
from motet.remote.sitedata import Everywhere, SiteData, Sites
from motet.setting import Setting
from motet.task import Task


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """An experiment that runs in many places.

    Attributes:
        experiment: Its name; sites keep their private state under it.
        method: What to run.
        task: Makes the network and its loss for data of the agreed form.
        sites: What the data look like, and how a site reads its own.
        run: How long, with whom, and what is looked at on the way.
        tables: All of it as the tables of a config; their hash stands for the agreement.
    """

    experiment: str
    method: AnyMethod
    task: Callable[[Federation], Task]
    sites: Sites
    run: RunChoice
    tables: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*", self.experiment):
            raise RequestError(
                "the name of an experiment is made of letters, digits, '-', '_' and '.'; "
                f'"{self.experiment}" came.'
            )
        if type(self.method).prepare is not Method.prepare:
            raise CapabilityError(
                f"{self.method.name} moves examples between clients before it trains, and here "
                "they never leave their sites; choose another method."
            )
        if is_private(self.method):
            raise CapabilityError(
                "the noise of a private run comes from its seed, which the server and every site "
                "know, so that it would protect nobody here; choose an ordinary optimizer= and "
                "reduce=."
            )

    @classmethod
    def from_run_config(cls, run_config: Mapping[str, Scalar]) -> Agreement:
        """Read the agreement from the entries `experiment` and `config` (TOML text)."""
        for key in ("experiment", "config"):
            if not isinstance(run_config.get(key), str) or not run_config[key]:
                raise RequestError(f'the run config needs "{key}"; {run_config.get(key)!r} came.')
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
            task=lambda data: about.model.resolved(data, about.data).task(data),
            sites=sites,
            run=about.run.resolved(),
            tables=tables,
        )

    @property
    def agreed(self) -> str:
        """A hash that only the same agreement has."""
        plain = self.tables or {"method": method_to_dict(self.method), "seed": self.run.seed}
        return hashlib.sha256(json_text({self.experiment: plain}).encode()).hexdigest()

    def outline(self, clients: tuple[str, ...]) -> Outline:
        """Make what the server knows about the data of these clients."""
        return outline(self.sites.form(), sorted(clients), self.agreed)

    def setting(self, federation: Federation) -> Setting:
        """Make the setting for data at hand, or for an outline."""
        task = self.task(federation).seeing(blank(federation).x)
        key = Key(self.run.seed)
        initial = task.init(key.fold("init"))
        return Setting(self.method, task, federation, key, self.run.rounds, initial)

    def setting_at(self, client: str, place: str | None, *, check: bool = True) -> Setting:
        """Make one client's setting from its own data, which `check` tries out on the network."""
        federation = self.sites.load(client, place)
        setting = self.setting(federation)
        if check:
            check_fits(setting.task, federation)
        return setting


def _read(tables: Mapping[str, Any]) -> tuple[Experiment, Sites]:
    data = tables.get("data", {})
    if not (isinstance(data, Mapping) and "shape" in data):
        about = experiment_from_dict(tables)
        return about, Everywhere(about.data)
    about = experiment_from_dict({name: t for name, t in tables.items() if name != "data"})
    return about, read_fields(SiteData, {"seed": about.run.seed, **data}, "data")
