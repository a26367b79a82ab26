"""The directory of a deployment: where everything in it is, and what it was made for."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import tomli_w

from motet.errors import RequestError, StateError

RECORD = "deployment.toml"
CONFIG = "experiment.toml"  # at each site: what was agreed on
PACKAGE = "motet_app"  # of the Flower app
SUPERLINK_PORT, SITE_PORT = 8000, 9094  # on loopback; Flower's own defaults
# Names travel through a comma-separated list, a quoted setting and a folder's name.
NAME = re.compile(r"\w[\w ./-]*")


@dataclass(frozen=True)
class Deployment:
    """One deployment.

    Attributes:
        path: Its directory.
        experiment: Name under which sites keep their private state.
        sites: Names of the sites: the clients of the run it was made from.
        host: Name or address under which sites reach the server.
        port: Port there.
    """

    path: Path
    experiment: str
    sites: tuple[str, ...]
    host: str
    port: int

    @classmethod
    def open(cls, path: Path) -> Deployment:
        """Read what a directory was made for."""
        try:
            record = tomllib.loads((path / RECORD).read_text(encoding="utf-8"))
            return cls(path.resolve(), **{**record, "sites": tuple(record["sites"])})
        except OSError:
            raise StateError(
                f"{path} holds no deployment: {RECORD} is missing. Make one with "
                f"`motet deploy init {path} --from RUN`."
            ) from None
        except (ValueError, TypeError, KeyError) as reason:
            raise StateError(f"{path / RECORD} cannot be read: {reason}.") from None

    def save(self) -> None:
        """Write down what this directory is for."""
        record = {k: v for k, v in vars(self).items() if k != "path"}
        (self.path / RECORD).write_text(tomli_w.dumps(record), encoding="utf-8")

    @property
    def app(self) -> Path:
        """The Flower app that is submitted. Nothing secret is below it."""
        return self.path / "app"

    @property
    def certificates(self) -> Path:
        """The private authority and the server's certificate."""
        return self.path / "certificates"

    @property
    def authority(self) -> Path:
        """The certificate that everybody trusts."""
        return self.certificates / "ca.crt"

    @property
    def home(self) -> Path:
        """Where Flower's own command line keeps its settings."""
        return self.path / "flower"

    @property
    def trial(self) -> Path:
        """Everything about the last trial."""
        return self.path / "trial"

    @property
    def out(self) -> Path:
        """The run directory of the server."""
        return self.path / "run"

    @property
    def address(self) -> str:
        """Where sites connect to."""
        return f"{self.host}:{self.port}"

    def site(self, name: str) -> Path:
        """Name the folder that goes to a site."""
        return self.path / "sites" / quote(name, safe=" ")

    def data(self, name: str) -> Path:
        """Name a site's data: a table, or a folder of arrays."""
        table = self.site(name) / "data.csv"
        return table if table.exists() else self.site(name) / "data"


def check_new(path: Path) -> None:
    """Refuse a directory that holds something: keys are never replaced unasked."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        what = "already holds a deployment" if (path / RECORD).exists() else "is not empty"
        raise StateError(f"{path} {what}. Choose a new directory, or remove this one first.")


def check_names(sites: tuple[str, ...]) -> None:
    """Refuse names that cannot be the name of a site."""
    for name in sites:
        if not NAME.fullmatch(name):
            raise RequestError(
                f"{name!r} cannot name a site: expected letters, digits, spaces and . / - _, and "
                "a letter or digit first. Rename the client in the data."
            )
