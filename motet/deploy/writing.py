"""`motet deploy init`: everything a federation needs, written into one directory."""

from __future__ import annotations

import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

from motet.config import Experiment, write_tables
from motet.data.federation import Federation
from motet.deploy import services
from motet.deploy.app import write_app
from motet.deploy.certificates import write_certificates, write_site_key
from motet.deploy.commands import LOOPBACK, supernode
from motet.deploy.crossing import Crossing, Line, crossing
from motet.deploy.environment import SWITCHES
from motet.deploy.examples import agreed_data, write_examples
from motet.deploy.layout import CONFIG, SITE_PORT, Deployment, check_names, check_new
from motet.deploy.pages import write_page
from motet.judging.phrases import size
from motet.remote.agreement import Agreement


@dataclass(frozen=True)
class Draft:
    """A deployment that has been checked, and is ready to be written.

    Attributes:
        deployment: Where it goes, and for whom.
        experiment: Complete.
        federation: The data of the run it is made from.
        config: The experiment as sites read it: the form of the data in place of the data.
        crossing: What the sites will send and receive.
    """

    deployment: Deployment
    experiment: Experiment
    federation: Federation
    config: str
    crossing: Crossing

    @classmethod
    def of(cls, experiment: Experiment, path: Path, *, name: str, host: str, port: int) -> Draft:
        """Check what can be checked before a file is written."""
        check_new(path)
        federation = experiment.federation()
        sites = tuple(sorted(federation.clients))
        check_names(sites)
        complete = experiment.resolved(federation)
        tables = {**complete.to_dict(), "data": agreed_data(complete.data, federation)}
        config = write_tables(tables)
        agreement = Agreement.from_text(name, config)
        deployment = Deployment(path.resolve(), name, sites, host, port)
        return cls(deployment, complete, federation, config, crossing(agreement, sites))

    def write(self) -> None:
        """Write everything; the record last, since it says that the rest is there."""
        write_app(self.deployment, self.config)
        hosts = dict.fromkeys([self.deployment.host, "localhost", LOOPBACK])
        write_certificates(self.deployment.certificates, list(hosts))
        for site in self.deployment.sites:
            self._write_site(site)
        own_code = self.experiment.model.name or ""
        services.write(self.deployment, own_code=own_code if ":" in own_code else "")
        self._write_readme()
        self.deployment.save()

    def _write_site(self, site: str) -> None:
        deployment, folder = self.deployment, self.deployment.site(site)
        write_examples(folder, self.experiment.data, self.federation, site)
        (folder / CONFIG).write_text(self.config, encoding="utf-8")
        write_site_key(folder / "site.key")
        shutil.copy(deployment.authority, folder)
        here = Path()  # the script goes to its own folder first
        command = supernode(here, server=deployment.address, port=SITE_PORT)
        write_page(
            folder / "start.sh",
            "start.sh",
            program=True,
            site=site,
            address=deployment.address,
            switches=SWITCHES,
            command=shlex.join(command),
            data=deployment.data(site).name,
        )
        self._write_site_page(site)

    def _write_site_page(self, site: str) -> None:
        federation, card = self.federation, self.experiment.method.card
        table = agreed_data(self.experiment.data, federation)
        write_page(
            self.deployment.site(site) / "README.md",
            "site.md",
            site=site,
            experiment=self.deployment.experiment,
            address=self.deployment.address,
            idea=card.idea,
            private=card.private,
            data=table,
            x_kind=_kind(federation.x.dtype.name),
            y_kind="numbers" if federation.classes is None else f"0 to {federation.classes - 1}",
            down=self.crossing.down,
            up=self.crossing.up,
            down_size=size(_total(self.crossing.down)),
            up_size=size(_total(self.crossing.up)),
        )

    def _write_readme(self) -> None:
        write_page(
            self.deployment.path / "README.md",
            "README.md",
            experiment=self.deployment.experiment,
            method=self.experiment.method.card.title,
            sites=self.deployment.sites,
        )


def _kind(dtype: str) -> str:
    return "uint8 pixels from 0 to 255" if dtype == "uint8" else dtype


def _total(lines: tuple[Line, ...]) -> int:
    return sum(line.size for line in lines)
