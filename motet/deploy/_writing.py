"""`motet deploy init`: writes everything that a federation needs into one directory."""

from __future__ import annotations

import os
import shutil
import tomllib
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from motet._core.atomic import make_private_folder
from motet._core.real_paths import real_path
from motet._core.text import size
from motet._export.card_columns import columns_table
from motet.config import Experiment, experiment_from_dict, write_tables
from motet.data._federation import Federation
from motet.deploy import _services as services
from motet.deploy._app import write_app
from motet.deploy._certificates import write_certificates
from motet.deploy._examples import agreed_data, raw_table, write_examples
from motet.deploy._keys import write_site_key
from motet.deploy._layout import BASE, CONFIG, KEY, PIN, Deployment, check_names, check_new
from motet.deploy._pages import write_page
from motet.deploy._runtime.agreement import Agreement
from motet.deploy._runtime.pinning import hash_of_text
from motet.deploy._runtime.sitedata import SiteData
from motet.deploy._sent_statistics import sent_by_sites
from motet.deploy._site_settings import SiteSettings
from motet.deploy._submission import app_settings
from motet.deploy._traffic import audit_traffic, traffic_sentences
from motet.deploy._wire_manifest import WireManifest, WireTensor, wire_manifest


@dataclass(frozen=True)
class Draft:
    """A deployment that has been checked and is ready to be written.

    Attributes:
        deployment: Its directory, sites and address.
        experiment: The experiment, with all defaults filled in.
        federation: The data of the original run.
        config: The experiment as sites read it: the form of the data instead of the data.
        wire: The tensors that sites will send and receive.
        traffic: What stays at a site, what leaves it and who receives it, in sentences.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import motet
        >>> tables = {"method": {"name": "fedper"}, "data": {"name": "digits", "limit": 200}}
        >>> experiment = motet.config.experiment_from_dict(tables)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "net"
        ...     draft = Draft.of(experiment, path, name="digits", host="fl.example.org")
        >>> draft.deployment.address, len(draft.deployment.sites)
        ('fl.example.org:8443', 20)
        >>> [tensor.name for tensor in draft.wire.up]
        ['body.0.weight', 'body.0.bias']
    """

    deployment: Deployment
    experiment: Experiment
    federation: Federation
    config: str
    wire: WireManifest
    traffic: tuple[str, ...]

    @classmethod
    def of(cls, experiment: Experiment, path: Path, *, name: str, host: str, **more: Any) -> Draft:
        """Check everything that can be checked before a file is written.

        Args:
            experiment: The experiment.
            path: A new directory.
            name: Name of the experiment.
            host: Under which sites reach the server.
            more: Ports and other fields of the `Deployment`, if not the defaults.
        """
        check_new(path)
        federation = experiment.federation()
        sites = tuple(sorted(federation.clients))
        check_names(sites)
        complete = _with_frozen_hash(experiment.resolved(federation), federation)
        tables = {**complete.to_dict(), "data": agreed_data(complete.data, federation)}
        config = write_tables(tables)
        agreement = Agreement.from_text(name, config)
        deployment = Deployment(real_path(path), name, sites, host, **more)
        wire, traffic = wire_manifest(agreement, sites), audit_traffic(agreement)
        return cls(deployment, complete, federation, config, wire, traffic_sentences(traffic))

    @classmethod
    def reopened(cls, deployment: Deployment) -> Draft:
        """Make the draft of a deployment that was written before, without the data of its run.

        Args:
            deployment: The deployment.
        """
        config = app_settings(deployment)["config"]
        agreement = Agreement.from_text(deployment.experiment, config)
        tables = tomllib.loads(config)
        federation: Federation = agreement.empty_federation(deployment.sites)
        if "schema" in tables.pop("data") and isinstance(agreement.sites, SiteData):
            federation = replace(federation, schema=agreement.sites.table_schema())
        experiment = experiment_from_dict(tables)
        wire, traffic = wire_manifest(agreement, deployment.sites), audit_traffic(agreement)
        return cls(deployment, experiment, federation, config, wire, traffic_sentences(traffic))

    def write(self) -> None:
        """Write everything; the record last, since its presence means that the rest is complete."""
        make_private_folder(self.deployment.path)
        write_app(self.deployment, self.config)
        write_certificates(self.deployment.certificates, self.deployment.hosts)
        for site in self.deployment.sites:
            folder = self.deployment.site(site)
            self.write_site(site)
            write_examples(folder, self.experiment.data, self.federation, site, self._raw)
            write_site_key(folder / KEY)
            if self.experiment.model.base:  # an example, too: a site may have its own file
                _put_file(Path(self.experiment.model.base), folder / BASE)
        services.write(self.deployment, own_code=self.own_code)
        self._write_readme()
        self.deployment.save()

    @cached_property
    def _raw(self) -> Any:
        """Read the rows of a table once for all sites."""
        return raw_table(self.experiment.data)

    @property
    def agreed(self) -> str:
        """The hash of the experiment, to which every site agrees."""
        return hash_of_text(self.deployment.experiment, self.config)

    @property
    def _holds_tables(self) -> bool:
        return "schema" in tomllib.loads(self.config)["data"]

    @property
    def own_code(self) -> str:
        """The user's own function that makes the network, which must be installed at every site."""
        name = self.experiment.model.name or ""
        return name if ":" in name and not name.startswith("motet.") else ""

    def write_site(self, site: str) -> None:
        """Write the folder of a site, except for its data and its key.

        Args:
            site: Name of the site.
        """
        deployment, folder = self.deployment, self.deployment.site(site)
        make_private_folder(folder)
        self.write_agreement(site)
        shutil.copyfile(deployment.authority, folder / "ca.crt")
        settings = SiteSettings(
            name=site,
            server=deployment.address,
            data="data.csv" if self._holds_tables else "data",
            port=deployment.site_port,
            max_clients=deployment.most_clients,
            base=BASE if self.experiment.model.base else "",
        )
        settings.write(folder)
        services.write_site(deployment, site)

    def write_agreement(self, site: str) -> None:
        """Write what a site agrees to: the experiment, its hash, and the page about them.

        Args:
            site: Name of the site.
        """
        folder = self.deployment.site(site)
        (folder / CONFIG).write_text(self.config, encoding="utf-8")
        pin = f"{self.agreed}  {self.deployment.experiment}\n"
        (folder / PIN).write_text(pin, encoding="utf-8")
        self._write_site_page(site)

    def _write_site_page(self, site: str) -> None:
        federation, card = self.federation, self.experiment.method.card
        table = tomllib.loads(self.config)["data"]
        schema = federation.schema if self._holds_tables else None
        write_page(
            self.deployment.site(site) / "README.md",
            "site.md",
            site=site,
            experiment=self.deployment.experiment,
            address=self.deployment.address,
            place=services.site_place(self.deployment),
            user=services.USER,
            unit=f"{services.unit_name(self.deployment, 'site')}.service",
            agreed=self.agreed,
            most_clients=self.deployment.most_clients,
            idea=card.idea,
            traffic=self.traffic,
            data=table,
            schema=schema,
            sent={} if schema is None else sent_by_sites(table["missing"]),
            frozen=self.experiment.model.frozen,
            base=BASE,
            columns="" if schema is None else columns_table(schema.at(site)),
            x_kind=_kind(federation.x.dtype.name),
            y_kind="numbers" if federation.classes is None else f"0 to {federation.classes - 1}",
            down=self.wire.down,
            up=self.wire.up,
            down_size=size(_total(self.wire.down)),
            up_size=size(_total(self.wire.up)),
        )

    def _write_readme(self) -> None:
        write_page(
            self.deployment.path / "README.md",
            "README.md",
            experiment=self.deployment.experiment,
            method=self.experiment.method.card.title,
            sites=self.deployment.sites,
        )


def _with_frozen_hash(experiment: Experiment, federation: Federation) -> Experiment:
    """Write into the agreement which frozen weights it is about, if they come from a file."""
    model = experiment.model
    if model.base is None:
        return experiment
    return replace(experiment, model=replace(model, frozen=model.task(federation).frozen_hash))


def _kind(dtype: str) -> str:
    return "uint8 pixels from 0 to 255" if dtype == "uint8" else dtype


def _total(tensors: tuple[WireTensor, ...]) -> int:
    return sum(tensor.size for tensor in tensors)


def _put_file(source: Path, place: Path) -> None:
    """Put a large file into a folder that will be handed out: no link that points elsewhere.

    Archives and images of containers hold the content of a hard link, which takes no room here.
    """
    try:
        os.link(source.resolve(), place)
    except OSError:  # on another disk, or of another owner
        shutil.copyfile(source, place)
